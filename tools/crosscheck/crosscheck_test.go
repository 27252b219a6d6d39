package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module of files and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.24\n"
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	return dir
}

func TestCheck(t *testing.T) {
	dir := module(t, map[string]string{
		"a/a.go":            "package a\n\nimport \"example.test/m/b\"\n\nfunc A() int { return b.B() }\n",
		"b/b_linux.go":      "package b\n\nimport \"syscall\"\n\nfunc B() int { return int(syscall.SYS_GETTID) }\n",
		"b/b_darwin.go":     "package b\n\nfunc B() string { return \"\" }\n",
		"b/b_linux_test.go": "package b\n\nvar _ = missing\n",
	})
	for _, c := range []struct {
		args []string
		out  string // when it is well
		err  string // else
	}{
		{[]string{"linux/arm64", "linux/amd64"}, "linux/arm64: 2 packages compile\nlinux/amd64: 2 packages compile\n", ""},
		{[]string{"darwin/arm64"}, "", "cannot use b.B()"},
		{[]string{"-tests", "linux/arm64"}, "", "undefined: missing"},
		{[]string{"plan9/amd64"}, "", "b"},
		{[]string{"linux"}, "", "such as linux/arm64"},
		{[]string{"/amd64"}, "", "such as linux/arm64"},
		{[]string{"nosuch/amd64"}, "", "nosuch"},
		{nil, "", "name platforms"},
	} {
		var out, errOut bytes.Buffer
		err := run(append([]string{"-root", dir}, c.args...), &out, &errOut)
		switch {
		case c.err == "" && (err != nil || out.String() != c.out):
			t.Errorf("%v: %q, %v", c.args, out.String(), err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %q, error %v, want one of %q", c.args, out.String(), err, c.err)
		}
	}
}
