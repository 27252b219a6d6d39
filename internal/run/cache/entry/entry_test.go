package entry_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
)

func content(s string, inline bool) entry.Content {
	c := entry.Content{Digest: digest.Of([]byte(s)), Size: int64(len(s))}
	if inline {
		c.Inline = []byte(s)
	}
	return c
}

func sample(files int) *entry.Entry {
	e := &entry.Entry{Key: digest.Of([]byte("key")), Task: "a#build", Took: time.Second, Usage: run.Usage{CPU: time.Minute, PeakMemory: 1 << 40, Sampled: true},
		Log: content("log", true), Links: []entry.Link{{Path: "a/dist/l\xff", Target: "x\xfe"}}, Dirs: []entry.Dir{{Path: "a/dist", Perm: 0o755}}}
	for i := range files {
		e.Files = append(e.Files, entry.File{Path: fmt.Sprintf("a/dist/f%05d", i), Perm: 0o644, Content: content(fmt.Sprint(i), i%2 == 0)})
	}
	return e
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, n := range []int{0, 1, 10, 5000} {
		want := sample(n)
		b := want.Encode()
		got, err := entry.Decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d files: %v\n%+v\n%+v", n, err, got, want)
		}
		if !bytes.Equal(b, got.Encode()) {
			t.Errorf("%d files: encoding is not the same again", n)
		}
	}
	empty := &entry.Entry{Key: digest.Of(nil), Log: content("", true)}
	if got, err := entry.Decode(empty.Encode()); err != nil || got.Log.Inline == nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEveryDamageIsSeen(t *testing.T) {
	b := sample(2).Encode()
	for i := range b {
		for _, bit := range []byte{1, 0x80} {
			damaged := bytes.Clone(b)
			damaged[i] ^= bit
			if _, err := entry.Decode(damaged); !errs.Is(err, errs.DataLoss) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if _, err := entry.Decode(b[:i]); !errs.Is(err, errs.DataLoss) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

func TestCheckRefusesWhatNoSaveMakes(t *testing.T) {
	for what, change := range map[string]func(e *entry.Entry){
		"out":       func(e *entry.Entry) { e.Files[0].Path = "../x" },
		"absolute":  func(e *entry.Entry) { e.Files[0].Path = "/etc/passwd" },
		"not clean": func(e *entry.Entry) { e.Files[0].Path = "a//b" },
		"git":       func(e *entry.Entry) { e.Files[0].Path = "a/.GIT/config" },
		"root":      func(e *entry.Entry) { e.Dirs[0].Path = "." },
		"twice":     func(e *entry.Entry) { e.Links[0].Path = e.Files[0].Path },
		"in a file": func(e *entry.Entry) { e.Files[1].Path = e.Files[0].Path + "/x" },
		"in a link": func(e *entry.Entry) { e.Files[1].Path = e.Links[0].Path + "/deep/x" },
		"in itself": func(e *entry.Entry) { e.Dirs[0].Path = e.Links[0].Path + "/x" },
		"long":      func(e *entry.Entry) { e.Files[0].Path = strings.Repeat("x/", 1<<20) + "x" },
		"far":       func(e *entry.Entry) { e.Links[0].Target = strings.Repeat("x/", 1<<20) },
		"mode":      func(e *entry.Entry) { e.Files[0].Perm = 0o4755 },
		"target":    func(e *entry.Entry) { e.Links[0].Target = "" },
		"digest":    func(e *entry.Entry) { e.Files[1].Digest = "../../x" },
		"inline":    func(e *entry.Entry) { e.Files[0].Inline = []byte("y") },
		"closed":    func(e *entry.Entry) { e.Dirs[0].Perm = 0 },
		"for ever":  func(e *entry.Entry) { e.Took = 1 << 62 },
		"before":    func(e *entry.Entry) { e.Took = -1 },
		"log":       func(e *entry.Entry) { e.Log = entry.Content{Digest: e.Log.Digest, Size: 1 << 40} },
		"size":      func(e *entry.Entry) { e.Files[1].Size = -1 },
	} {
		e := sample(2)
		change(e)
		if err := e.Check(); !errs.Is(err, errs.DataLoss) && !errs.Is(err, errs.InvalidArgument) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.1000v", what, err)
		}
	}
	for _, ok := range []string{"a", "a/b", "a/..b", ".gitignore", "a\xff\n"} {
		if !entry.Clean(ok) {
			t.Errorf("%q is refused", ok)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, n := range []int{0, 3, 200} {
		f.Add(sample(n).Encode())
	}
	f.Add([]byte("brood entry 1\nz" + strings.Repeat("x", 40)))
	for _, n := range []int{0, 3} { // bodies, to which the test adds head and sum
		b := sample(n).Encode()
		f.Add(b[len("brood entry 1\nr") : len(b)-16])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := entry.Decode(b)
		if err != nil {
			sum := sha256.Sum256(b)
			e, err = entry.Decode(slices.Concat([]byte("brood entry 1\nr"), b, sum[:16]))
		}
		if err != nil {
			return
		}
		if again, err := entry.Decode(e.Encode()); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%v\n%+v\n%+v", err, again, e)
		}
	})
}
