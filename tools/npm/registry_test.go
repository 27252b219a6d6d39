package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// machine is a system made of maps.
type machine struct {
	env, files, programs map[string]string
}

func (m machine) system() system {
	return system{
		env: func(name string) string { return m.env[name] },
		say: func(string) {},
		read: func(file string) ([]byte, error) {
			if s, ok := m.files[file]; ok {
				return []byte(s), nil
			}
			return nil, os.ErrNotExist
		},
		run: func(_ context.Context, name string, _ ...string) (string, error) {
			if s, ok := m.programs[name]; ok {
				return s, nil
			}
			return "", fmt.Errorf("%s: not found", name)
		},
	}
}

// TestFindRegistry takes the sources away one after the other.
func TestFindRegistry(t *testing.T) {
	m := machine{
		env: map[string]string{"NPM_CONFIG_REGISTRY": "https://env.test", "npm_config_registry": "https://lower.test/",
			"HOME": "/home/u", "PREFIX": "/opt"},
		files: map[string]string{"/home/u/.npmrc": "registry=https://home.test/npm/", "/opt/etc/npmrc": "registry = https://prefix.test",
			"/etc/npmrc": "registry = 'http://etc.test:8080'"},
		programs: map[string]string{"npm": "https://npm.test/\n", "go": "https://public.test/\n"},
	}
	steps := []struct {
		want string
		drop func()
	}{
		{"https://env.test/", func() { delete(m.env, "NPM_CONFIG_REGISTRY") }},
		{"https://lower.test/", func() { delete(m.env, "npm_config_registry") }},
		{"https://home.test/npm/", func() { m.files["/home/u/.npmrc"] = "fund=false\n" }},
		{"https://prefix.test/", func() { delete(m.env, "PREFIX") }},
		{"http://etc.test:8080/", func() { delete(m.files, "/etc/npmrc") }},
		{"https://npm.test/", func() { m.programs["npm"] = "undefined\n" }},
		{"https://public.test/", func() { delete(m.programs, "go") }},
	}
	for _, s := range steps {
		if got, err := findRegistry(t.Context(), m.system()); err != nil || got != s.want {
			t.Errorf("findRegistry: %q, %v; want %q", got, err, s.want)
		}
		s.drop()
	}
	if _, err := findRegistry(t.Context(), m.system()); err == nil || !strings.Contains(err.Error(), "set NPM_CONFIG_REGISTRY") {
		t.Errorf("with nothing left: %v, want the advice to set NPM_CONFIG_REGISTRY", err)
	}
}

func TestOddRegistryIsRefused(t *testing.T) {
	for _, v := range []string{"registry.test", "ftp://registry.test/", "file:///tmp/x", "https://", "https://a.test/?q=1", "https://a b/"} {
		m := machine{env: map[string]string{"NPM_CONFIG_REGISTRY": v}}
		if got, err := findRegistry(t.Context(), m.system()); err == nil {
			t.Errorf("%q was taken as %q", v, got)
		}
	}
}

func TestNpmrc(t *testing.T) {
	env := func(name string) string { return map[string]string{"HOST": "h.test"}[name] }
	cases := map[string]string{
		"":                                      "",
		"# registry=a\n; registry=b\n":          "",
		"registry=a\nregistry = b\n":            "b",
		"@grpc:registry=a\n":                    "",
		"registry=\"https://${HOST}/npm\"\r\n":  "https://h.test/npm",
		"registry=https://${NONE}/${HOST}/${H":  "https://${NONE}/h.test/${H",
		"[section]\nregistry=a\n":               "",
		"  registry  =  https://x.test/  \nx=y": "https://x.test/",
	}
	for text, want := range cases {
		if got := npmrcRegistry(text, env); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzNpmrc(f *testing.F) {
	f.Add("registry=\"https://${HOST}/npm\"\n", "v")
	f.Add("registry='${A}${A", "${A}")
	f.Fuzz(func(t *testing.T, text, value string) {
		got := npmrcRegistry(text, func(string) string { return value })
		if len(got) > len(text)*(len(value)+1) {
			t.Errorf("%d bytes of text and %d of value became %d", len(text), len(value), len(got))
		}
	})
}

func TestPasswordIsNotShown(t *testing.T) {
	f := quickFetcher("http://user:secret@127.0.0.1:1/")
	defer f.client.CloseIdleConnections()
	file, err := os.Create(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = f.get(t.Context(), pack{name: "long", version: "1.0.0"}, file)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("get: %v; want an error without the password", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped")
	cancel(why)
	if err := f.get(ctx, pack{name: "long", version: "1.0.0"}, file); !errors.Is(err, why) {
		t.Errorf("get when stopped: %v, want %v", err, why)
	}
}
