package reapi

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/fabric/blob"
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
	trees := planter{e: got}
	for _, d := range r.GetOutputDirectories() {
		for bd, b := range own {
			if string(bd.Hash) == d.GetTreeDigest().GetHash() {
				if err := trees.add(d.GetPath(), b); err != nil {
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

// A small tree may stand for paths of any length and number: they are refused
// before they are made.
func TestSmallTreesThatStandForMuchAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ levels, length int }{"many": {24, 1}, "long": {20, 200}} {
		tree := &rexec.Tree{}
		d := &rexec.Directory{}
		for range c.levels {
			b, err := marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			below := blob.Of(b).Proto()
			tree.Children = append(tree.Children, d)
			d = &rexec.Directory{Directories: []*rexec.DirectoryNode{
				{Name: strings.Repeat("a", c.length), Digest: below}, {Name: strings.Repeat("b", c.length), Digest: below},
			}}
		}
		tree.Root = d
		b, err := marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = (&planter{e: &entry.Entry{}}).add("dist", b)
		runtime.ReadMemStats(&after)
		if !errs.Is(err, errs.DataLoss) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 512<<20 {
			t.Errorf("%s: a tree of %d bytes took %d", name, len(b), used)
		}
	}
}

// The trees of one result share what they may stand for.
func TestTreesOfAResultAreBoundedTogether(t *testing.T) {
	b, err := marshal(&rexec.Tree{Root: &rexec.Directory{}})
	if err != nil {
		t.Fatal(err)
	}
	trees := planter{e: &entry.Entry{}}
	name := strings.Repeat("x", 1<<20)
	for range 100 {
		if err = trees.add(name, b); err != nil {
			break
		}
	}
	if !errs.Is(err, errs.DataLoss) || len(err.Error()) > 1000 {
		t.Errorf("%v", err)
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
		if (&planter{e: e}).add("a/dist", b) == nil && e.Check() == nil {
			e.Encode()
		}
	})
}
