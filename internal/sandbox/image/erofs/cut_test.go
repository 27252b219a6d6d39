package erofs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// listable checks what gVisor asks of a directory's blocks.
func listable(t *testing.T, names []string, cuts []int, last int) {
	t.Helper()
	at := 0
	for b, count := range cuts {
		used := 0
		for _, name := range names[at : at+count] {
			used += direntSize + len(name)
		}
		at += count
		if used > BlockSize {
			t.Fatalf("block %d holds %d bytes", b, used)
		}
		final := b == len(cuts)-1
		if final && used != last {
			t.Fatalf("the last block takes %d bytes, said to be %d", used, last)
		}
		if !final && BlockSize-used+len(names[at-1]) > MaxName {
			t.Fatalf("block %d ends with a name of %d and %d bytes of padding", b, len(names[at-1]), BlockSize-used)
		}
	}
	if at != len(names) {
		t.Fatalf("%d of %d names are in blocks", at, len(names))
	}
}

func names(n int, length func() int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%06d", i)
		all[i] += strings.Repeat("x", max(0, length()-6))
	}
	slices.Sort(all)
	return all
}

// TestNamesUpTo121BytesAlwaysFit is the bound that the comment promises: the
// padding is less than the next entry, so name and padding stay below 255.
func TestNamesUpTo121BytesAlwaysFit(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		most := 6 + r.IntN(116)
		all := names(1+r.IntN(500), func() int { return 6 + r.IntN(most-5) })
		cuts, last := cutNames(all)
		if cuts == nil {
			t.Fatalf("seed %d: names of up to %d bytes cannot be cut", seed, most)
		}
		listable(t, all, cuts, last)
	}
}

func TestLongNamesFitOrAreRefused(t *testing.T) {
	fit := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := names(1+r.IntN(120), func() int { return 1 + r.IntN(MaxName) })
		if cuts, last := cutNames(all); cuts != nil {
			fit++
			listable(t, all, cuts, last)
		}
	}
	if fit == 0 || fit == 200 {
		t.Errorf("%d of 200 fit: the test shows nothing", fit)
	}
	root := NewDir(0o755)
	for _, name := range names(100, func() int { return 200 }) {
		if err := root.Add(name, NewDir(0o755)); err != nil {
			t.Fatal(err)
		}
	}
	err := (&layout{}).place(root)
	if err == nil || !strings.Contains(err.Error(), "shorten the names") {
		t.Errorf("a directory that gVisor cannot list: %v", err)
	}
}
