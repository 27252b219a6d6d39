package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func everything(string) bool { return true }

func TestUnpackIsBounded(t *testing.T) {
	var many []entry
	for i := range 20 {
		many = append(many, entry{name: fmt.Sprintf("package/%d", i), body: strings.Repeat("x", 100)})
	}
	raw := tarball(t, many...)
	for name, max := range map[string]limits{
		"files": {files: 19, bytes: 1 << 20}, "bytes": {files: 20, bytes: 1999}, "headers": {files: 1, bytes: 100},
	} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := unpack(bytes.NewReader(raw), root, "p", max, everything); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		root.Close()
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpack(bytes.NewReader(raw), root, "p", limits{files: 20, bytes: 2000}, everything); err != nil {
		t.Errorf("what just fits: %v", err)
	}
}

// FuzzUnpack holds that no tarball writes outside of its folder, leaves
// anything but files and folders, or more than it may.
func FuzzUnpack(f *testing.F) {
	f.Add(tarball(f, entry{name: "package/a/b", body: "x"}, entry{name: "package/c", body: "y", mode: 0o755}))
	f.Add(tarball(f, entry{name: "package/../../evil", body: "x"}))
	f.Add([]byte("\x1f\x8b\x08"))
	max := limits{files: 50, bytes: 1 << 16}
	f.Fuzz(func(t *testing.T, raw []byte) {
		dir := t.TempDir()
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = unpack(bytes.NewReader(raw), root, "in", max, everything) // only what it leaves counts
		var total int64
		files := 0
		for _, p := range listing(t, dir) {
			info, err := os.Lstat(filepath.Join(dir, p))
			if err != nil {
				t.Fatal(err)
			}
			if p != "in/" && !strings.HasPrefix(p, "in/") || !info.IsDir() && !info.Mode().IsRegular() {
				t.Fatalf("it left %s, %v", p, info.Mode())
			}
			if info.Mode().IsRegular() {
				files++
				total += info.Size()
			}
		}
		if files > max.files || total > max.bytes {
			t.Fatalf("it left %d files, %d bytes", files, total)
		}
	})
}
