package batch_test

import (
	"regexp"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/batch"
)

func TestValidateRefuses(t *testing.T) {
	long := strings.Repeat("a", 62)
	for name, c := range map[string]struct {
		r    batch.Request
		want string
	}{
		"nothing":           {batch.Request{}, "source and count, or groups"},
		"both":              {batch.Request{Source: "a", Count: 1, Groups: []batch.Group{{Source: "a", Count: 1}}}, "both"},
		"count 0":           {batch.Request{Source: "a"}, "at least 1"},
		"count and groups":  {batch.Request{Count: 2, Groups: []batch.Group{{Source: "a", Count: 1}}}, "count = 2"},
		"size and groups":   {batch.Request{GroupSize: 2, Groups: []batch.Group{{Source: "a", Count: 1}}}, "group_size = 2"},
		"group of 0":        {batch.Request{Groups: []batch.Group{{Source: "a", Count: 1}, {Source: "b"}}}, "group 1"},
		"too many":          {batch.Request{Source: "a", Count: 10_001}, "at most 10000"},
		"too many in sum":   {batch.Request{Groups: []batch.Group{{Source: "a", Count: 1 << 31}, {Source: "a", Count: 1 << 31}}}, "at most 10000"},
		"source":            {batch.Request{Source: "A", Count: 1}, "source name"},
		"group's source":    {batch.Request{Groups: []batch.Group{{Source: "a/b", Count: 1}}}, "group 0"},
		"sandbox by digest": {batch.Request{Source: "sandbox:" + string(digest.Of(nil)), Count: 1}, "source name"},
		"on":                {batch.Request{Source: "a", Count: 1, On: "everywhere"}, "host:<machine>"},
		"host":              {batch.Request{Source: "a", Count: 1, On: "host:"}, "names no machine"},
		"host's name":       {batch.Request{Source: "a", Count: 1, On: "host:A"}, "machine name"},
		"prefix letters":    {batch.Request{Source: "a", Count: 1, NamePrefix: "A"}, "prefix"},
		"prefix length":     {batch.Request{Source: "a", Count: 11, NamePrefix: long}, "at most 60"},
		"group's prefix":    {batch.Request{Groups: []batch.Group{{Source: "a", Count: 1, NamePrefix: "-x"}}}, "prefix"},
		"shared prefix":     {batch.Request{Groups: []batch.Group{{Source: "a", Count: 9, NamePrefix: long[:61]}, {Source: "b", Count: 2, NamePrefix: long[:61]}}}, "prefix"},
		"memory":            {batch.Request{Source: "a", Count: 1, MemoryMiB: 1 << 40}, "memory_mb"},
		"fallback empty":    {batch.Request{Source: "a", Count: 1, Fallback: &batch.Fallback{S3Prefix: "x"}}, "s3_bucket or dir"},
		"fallback both":     {batch.Request{Source: "a", Count: 1, Fallback: &batch.Fallback{S3Bucket: "x", Dir: "y"}}, "one of them"},
	} {
		err := batch.Validate(c.r)
		if errs.CodeOf(err) != errs.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := batch.New(batch.Params{Request: c.r}); again == nil {
			t.Errorf("%s: New accepts what Validate refuses", name)
		}
	}
}

func TestValidateAccepts(t *testing.T) {
	for _, r := range []batch.Request{
		{Source: "a", Count: 10_000, GroupSize: 1},
		{Source: "checkpoint:a", Count: 1, On: "local", GroupSize: 5},
		{Source: "sandbox:a", Count: 1, On: "auto"},
		{Source: string(digest.Of(nil)), Count: 1, On: "host:" + string(digest.Of(nil))},
		{Source: "a", Count: 1, On: "host:m1", Fallback: &batch.Fallback{Dir: "~/x"}},
		{Source: "a", Count: 10, NamePrefix: strings.Repeat("a", 61)},
	} {
		if err := batch.Validate(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func names(t *testing.T, r batch.Request, seed byte) []id.Name {
	t.Helper()
	var sources []batch.Source
	for _, g := range append(r.Groups, batch.Group{Source: r.Source}) {
		sources = append(sources, batch.Source{Ref: g.Source})
	}
	b, err := batch.New(batch.Params{Request: r, Sources: sources, Rand: [32]byte{seed}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Names()
}

func TestNamesCountOverGroupsThatShareAPrefix(t *testing.T) {
	got := names(t, batch.Request{NamePrefix: "p", Groups: []batch.Group{
		{Source: "a", Count: 2}, {Source: "b", Count: 1, NamePrefix: "q"}, {Source: "b", Count: 2}, {Source: "a", Count: 1, NamePrefix: "q"},
	}}, 0)
	want := []id.Name{"p-0", "p-1", "q-0", "p-2", "p-3", "q-1"}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestDrawnPrefixes(t *testing.T) {
	r := batch.Request{Groups: []batch.Group{{Source: "a", Count: 1}, {Source: "checkpoint:b", Count: 1}, {Source: "a", Count: 1}}}
	got := names(t, r, 1)
	rule := regexp.MustCompile(`^[ab]-[a-z0-9]{6}-\d$`)
	for _, n := range got {
		if !rule.MatchString(string(n)) {
			t.Errorf("name %q", n)
		}
	}
	if got[0][:8] != got[2][:8] || got[2] != got[0][:8]+"-1" || got[0][2:8] == got[1][2:8] {
		t.Errorf("%v: one draw per source", got)
	}
	if other := names(t, r, 2); other[0] == got[0] {
		t.Error("another seed draws the same")
	}
}

func TestDrawnPrefixIsCutToFit(t *testing.T) {
	for _, src := range []string{strings.Repeat("a", 63), strings.Repeat("a", 50) + "-" + strings.Repeat("b", 12), string(digest.Of(nil))} {
		for _, count := range []uint32{1, 10, 11, 10_000} {
			all := names(t, batch.Request{Source: src, Count: count}, 3)
			last := all[len(all)-1]
			if _, err := id.ParseName("fork", string(last)); err != nil || strings.Contains(string(last), "--") {
				t.Errorf("%d of %q: %q, %v", count, src, last, err)
			}
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add("a", uint32(1), uint32(0), "b", uint32(0), "auto", "p", "", uint64(0))
	f.Add("", uint32(0), uint32(0), "b", uint32(3), "host:x", strings.Repeat("p", 61), "q", uint64(7))
	f.Fuzz(func(t *testing.T, src string, count, size uint32, gsrc string, gcount uint32, on, prefix, gprefix string, memory uint64) {
		r := batch.Request{Source: src, Count: count, GroupSize: size, On: on, NamePrefix: prefix, MemoryMiB: memory}
		if gcount > 0 {
			r.Groups = []batch.Group{{Source: gsrc, Count: gcount, NamePrefix: gprefix}, {Source: gsrc, Count: 1}}
		}
		if err := batch.Validate(r); err != nil {
			if errs.CodeOf(err) != errs.InvalidArgument {
				t.Fatalf("%v has code %v", err, errs.CodeOf(err))
			}
			return
		}
		seen := map[id.Name]bool{}
		for _, n := range names(t, r, 4) {
			if _, err := id.ParseName("fork", string(n)); err != nil || seen[n] {
				t.Fatalf("%+v makes the name %q: %v", r, n, err)
			}
			seen[n] = true
		}
	})
}
