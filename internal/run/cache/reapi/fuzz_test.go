package reapi

import (
	"reflect"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/run/cache/entry"
)

func odd() *entry.Entry {
	c := entry.Content{Digest: digest.Of([]byte("x")), Size: 1}
	e := &entry.Entry{
		Log:   entry.Content{Digest: digest.Of(nil)},
		Dirs:  []entry.Dir{{Path: "a/d\xff", Perm: 0o700}, {Path: "a/d\xff/void\xfe", Perm: 0}, {Path: "b", Perm: 0o555}},
		Links: []entry.Link{{Path: "a/d\xff/l\xfd", Target: "\xfc"}},
		Files: []entry.File{{Path: "a/d\xff/f\xfb", Perm: 0o644, Content: c}, {Path: "a/d\xff/x", Perm: 0o755, Content: c}, {Path: "b/y", Perm: 0, Content: c}},
	}
	e.Sort()
	return e
}

func TestTreesCarryEverything(t *testing.T) {
	want := odd()
	r, own, err := encode(want)
	if err != nil || len(r.GetOutputDirectories()) != 2 || len(r.GetOutputFiles()) != 0 {
		t.Fatalf("%v, %v", r, err)
	}
	got := &entry.Entry{Log: want.Log}
	for _, d := range r.GetOutputDirectories() {
		for bd, b := range own {
			if string(bd.Hash) == d.GetTreeDigest().GetHash() {
				if err := addTree(got, d.GetPath(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got.Sort()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func FuzzTree(f *testing.F) {
	_, own, err := encode(odd())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range own {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		e := &entry.Entry{Key: digest.Of(nil), Log: entry.Content{Digest: digest.Of(nil)}}
		if addTree(e, "a/dist", b) == nil && e.Check() == nil {
			e.Encode()
		}
	})
}
