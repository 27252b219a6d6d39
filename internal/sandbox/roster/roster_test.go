package roster_test

import (
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/sandbox/roster"
)

func TestLoadIsTheLargerShare(t *testing.T) {
	m := roster.Machine{Cores: 8, MemoryMiB: 16000, ReservedCPUs: 2, ReservedMemoryMiB: 8000}
	if got := m.Load(); got != 0.5 {
		t.Errorf("load = %v, want the memory's share", got)
	}
	m.ReservedCPUs = 12
	if got := m.Load(); got != 1.5 {
		t.Errorf("load = %v, cpus may be promised more than once", got)
	}
	if got := (&roster.Machine{ReservedCPUs: 3}).Load(); got != 3 {
		t.Errorf("load of a machine of unknown size = %v", got)
	}
}

func TestSlotsNeverNegative(t *testing.T) {
	for _, c := range []struct{ limit, used, max, want int }{
		{0, 500, 7, 7}, {10, 4, 100, 6}, {10, 4, 3, 3}, {10, 12, 5, 0},
	} {
		m := roster.Machine{SandboxLimit: c.limit, SandboxesUsed: c.used}
		if got := m.Slots(c.max); got != c.want {
			t.Errorf("limit %d, used %d, max %d: %d slots, want %d", c.limit, c.used, c.max, got, c.want)
		}
	}
}

func TestMissingSaysWhat(t *testing.T) {
	m := roster.Machine{Name: "m1", Drivers: []string{"gvisor"}, Runtimes: []string{"aa"}, CPUFeatures: []string{"avx2"}}
	for _, c := range []struct {
		needs roster.Needs
		want  string
	}{
		{roster.Needs{}, ""},
		{roster.Needs{Driver: "gvisor", Runtime: "aa", CPUFeatures: []string{"avx2"}, Only: "m1"}, ""},
		{roster.Needs{Driver: "qemu"}, `no driver "qemu"`},
		{roster.Needs{Runtime: "bb"}, "lacks the runtime bb"},
		{roster.Needs{CPUFeatures: []string{"avx2", "amx", "sgx"}}, "lacks amx, sgx"},
		{roster.Needs{Only: "m2"}, "root of m2"},
	} {
		got := m.Missing(c.needs)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("Missing(%+v) = %q, want %q", c.needs, got, c.want)
		}
	}
}

func TestAbilitiesDifferWhenListsDiffer(t *testing.T) {
	a := roster.Machine{Drivers: []string{"ab"}}
	b := roster.Machine{Drivers: []string{"a", "b"}}
	c := roster.Machine{Runtimes: []string{"ab"}}
	if a.Abilities() == b.Abilities() || a.Abilities() == c.Abilities() {
		t.Error("different abilities read the same")
	}
	d := roster.Machine{Name: "other", Drivers: []string{"ab"}, Holds: []digest.Digest{"x"}}
	if a.Abilities() != d.Abilities() {
		t.Error("a name or a checkpoint is no ability")
	}
}

func TestFind(t *testing.T) {
	l := roster.List{
		{Name: "local", Online: true, Key: "aaaa11110000"},
		{Name: "m1", Online: true, Key: "bbbb22220000"},
		{Name: "m2", Key: "bbbb22229999"},
		{Name: "bbbb2222", Online: true, Key: "cccc"},
	}
	for want, name := range map[string]string{"local": "local", "m1": "m1", "aaaa11": "local", "bbbb22220": "m1", "bbbb2222": "bbbb2222"} {
		m, err := l.Find(want)
		if err != nil || string(m.Name) != name {
			t.Errorf("Find(%q) = %v, %v, want %s", want, m, err, name)
		}
	}
	for want, code := range map[string]errs.Code{"m3": errs.NotFound, "aa": errs.NotFound, "": errs.NotFound, "bbbb22": errs.InvalidArgument, "m2": errs.Unavailable} {
		if _, err := l.Find(want); errs.CodeOf(err) != code {
			t.Errorf("Find(%q): %v, want %v", want, err, code)
		}
	}
	if _, err := (roster.List{}).Find("x"); !strings.Contains(err.Error(), "only local") {
		t.Errorf("%v", err)
	}
}
