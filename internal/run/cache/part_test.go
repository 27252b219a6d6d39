package cache_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/store"
)

// TestAPartOfAResultDoesNotStay: a result of which something cannot be placed
// here leaves nothing that would be saved as the task's own.
func TestAPartOfAResultDoesNotStay(t *testing.T) {
	w := newWorld(t)
	content := entry.Content{Digest: digest.Of([]byte("x")), Size: 1, Inline: []byte("x")}
	none := entry.Content{Digest: digest.Of(nil), Inline: []byte{}}
	long := "a/dist/" + strings.Repeat("long", 100)
	e := &entry.Entry{Key: keyOf("1"), Task: "a#build", Log: none, Dirs: []entry.Dir{{Path: "a/dist", Perm: 0o755}}, Files: []entry.File{
		{Path: "a/dist/first", Perm: 0o644, Content: content}, {Path: long, Perm: 0o644, Content: content},
	}}
	s, err := store.Open(w.dir, 0)
	if err == nil {
		err = s.PutEntry(e.Key, e.Encode())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.put("a/dist/old", "old")
	w.put("a/src.ts", "source")
	if got := w.restore(task("a#build", "dist/**"), "1"); !strings.Contains(got, "file name too long") {
		t.Fatal(got)
	}
	if left, err := filepath.Glob(filepath.Join(w.root, "a/dist/*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(w.root, "a/src.ts")); err != nil {
		t.Error(err)
	}
}
