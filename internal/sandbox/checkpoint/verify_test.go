package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/sandbox/checkpoint"
)

func TestVerifyFindsOneChangedByte(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	c := make1(t, s, "base", "x", checkpoint.Options{})
	p := filepath.Join(c.Dir, "pages.img")
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(t.Context(), "base", nil); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "pages.img") {
		t.Errorf("Verify = %v", err)
	}
}

// What is small is read before every restore: nothing but the memory can be
// another unnoticed.
func TestCheckReadsWhatIsSmall(t *testing.T) {
	h := newHome(t)
	c := make1(t, open(t, h), "base", "x", checkpoint.Options{})
	small := 0
	for _, f := range c.Manifest.Files {
		if f.Size == 0 || f.Size > 1<<20 {
			continue
		}
		small++
		p := filepath.Join(c.Dir, f.Path)
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(checkpoint.Machine{}); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), f.Path) {
			t.Errorf("%s: %v", f.Path, err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Check(checkpoint.Machine{}); err != nil || small == 0 {
		t.Errorf("%d small files; whole: %v", small, err)
	}
}

// A record that is damaged or gone loses nothing of the checkpoint, which may
// have been pinned and so is.
func TestALostRecordPins(t *testing.T) {
	h := newHome(t)
	c := make1(t, open(t, h), "base", "x", checkpoint.Options{})
	file := filepath.Join(filepath.Dir(c.Dir), "record.json")
	for what, spoil := range map[string]func() error{
		"damaged": func() error { return os.WriteFile(file, []byte("z\"format\":1}"), 0o600) },
		"gone":    func() error { return os.Remove(file) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what was made anew is there the next time
			s := open(t, h)
			got, err := s.Get("base")
			if err != nil || !got.Record.Pinned || got.Digest != c.Digest || got.Record.Created.IsZero() {
				t.Fatalf("%s: %+v, %v", what, got.Record, err)
			}
			if err := s.Verify(t.Context(), "base", nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		s := open(t, h)
		if err := s.Unpin("base"); err != nil {
			t.Fatal(err)
		}
		if got, err := open(t, h).Get("base"); err != nil || got.Record.Pinned {
			t.Errorf("%s, unpinned: %+v, %v", what, got.Record, err)
		}
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	s := open(t, newHome(t))
	machineA, machineB := digest.Of([]byte("A")), digest.Of([]byte("B"))
	made := func(name id.Name, host bool) checkpoint.Checkpoint {
		d, err := s.Begin(name, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(d, "x"); err != nil {
			t.Fatal(err)
		}
		f := facts()
		if host {
			f.Base = checkpoint.Base{Kind: checkpoint.Host, Digest: f.Base.Digest, Machine: machineA,
				Open: []checkpoint.Stamp{{Path: "usr/z", Size: 1, MtimeNs: 2}, {Path: "usr/bin/p", Size: 10, MtimeNs: 20}}}
		}
		c, err := d.Publish(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	image, host := made("image", false), made("host", true)
	good := func() checkpoint.Machine {
		return checkpoint.Machine{
			Arch: "amd64", CPU: []string{"sse2", "avx", "aes"}, Fingerprint: machineA,
			HasRuntime: func(driver string, r id.Runtime) bool { return driver == "fake" && r == "r1" },
			HasBase:    func(b checkpoint.Base) bool { return b.Digest == digest.Of([]byte("base")) },
			Stat: func(_ checkpoint.Base, p string) (int64, int64, error) {
				if p == "usr/z" {
					return 1, 2, nil
				}
				return 10, 20, nil
			},
		}
	}
	for name, c := range map[string]struct {
		cp    checkpoint.Checkpoint
		spoil func(*checkpoint.Machine)
		want  string
	}{
		"good image":      {image, func(*checkpoint.Machine) {}, ""},
		"good host":       {host, func(*checkpoint.Machine) {}, ""},
		"image elsewhere": {image, func(m *checkpoint.Machine) { m.Fingerprint = machineB }, ""},
		"unknown machine": {host, func(m *checkpoint.Machine) { *m = checkpoint.Machine{} }, ""},
		"host elsewhere":  {host, func(m *checkpoint.Machine) { m.Fingerprint = machineB }, "made from this machine's root; use an image"},
		"architecture":    {image, func(m *checkpoint.Machine) { m.Arch = "arm64" }, "amd64"},
		"processor":       {image, func(m *checkpoint.Machine) { m.CPU = []string{"sse2"} }, "avx"},
		"runtime":         {image, func(m *checkpoint.Machine) { m.HasRuntime = func(string, id.Runtime) bool { return false } }, "runtime r1"},
		"base":            {image, func(m *checkpoint.Machine) { m.HasBase = func(checkpoint.Base) bool { return false } }, "import"},
		"root changed":    {host, func(m *checkpoint.Machine) { m.HasBase = func(checkpoint.Base) bool { return false } }, "root"},
		"open file changed": {host, func(m *checkpoint.Machine) {
			m.Stat = func(checkpoint.Base, string) (int64, int64, error) { return 10, 21, nil }
		}, "/usr/bin/p was open"},
		"open file gone": {host, func(m *checkpoint.Machine) {
			m.Stat = func(checkpoint.Base, string) (int64, int64, error) { return 0, 0, fs.ErrNotExist }
		}, "is gone"},
	} {
		m := good()
		c.spoil(&m)
		err := c.cp.Check(m)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errs.Is(err, errs.FailedPrecondition) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: %v", name, errs.CodeOf(err), err)
		}
	}
	if err := os.Truncate(filepath.Join(image.Dir, "pages.img"), 5); err != nil {
		t.Fatal(err)
	}
	if err := image.Check(good()); !errs.Is(err, errs.DataLoss) {
		t.Errorf("a cut file: %v", err)
	}
	if err := os.Remove(filepath.Join(host.Dir, "sub/state")); err != nil {
		t.Fatal(err)
	}
	if err := host.Check(good()); !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "sub/state") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestDamagedOnesStayUntilDeleted(t *testing.T) {
	h := newHome(t)
	s := open(t, h)
	make1(t, s, "good", "x", checkpoint.Options{})
	make1(t, s, "bad", "y", checkpoint.Options{})
	make1(t, s, "newer", "z", checkpoint.Options{})
	manifest := func(n string) string { return filepath.Join(h.Checkpoints(), n, "manifest.json") }
	b, err := os.ReadFile(manifest("newer"))
	if err := errors.Join(err, os.WriteFile(manifest("newer"), []byte(strings.Replace(string(b), `"format":1`, `"format":9`, 1)), 0o600),
		os.Truncate(manifest("bad"), 100)); err != nil {
		t.Fatal(err)
	}
	s = open(t, h)
	if _, err := s.Get("bad"); !errs.Is(err, errs.DataLoss) {
		t.Errorf("Get(bad) = %v", err)
	}
	if _, err := s.Get("newer"); !errs.Is(err, errs.Unsupported) {
		t.Errorf("Get(newer) = %v", err)
	}
	if list := s.List(); len(list) != 1 || list[0].Name != "good" {
		t.Errorf("List = %v", list)
	}
	if len(s.Damaged()) != 2 {
		t.Errorf("Damaged = %v", s.Damaged())
	}
	stuck := map[string]error{
		"rename": s.Rename("bad", "other"), "pin": s.Pin("bad"), "unpin": s.Unpin("bad"), "verify": s.Verify(t.Context(), "bad", nil),
	}
	_, stuck["make"] = s.Begin("bad", checkpoint.Options{})
	for what, err := range stuck {
		if !errs.Is(err, errs.DataLoss) || !strings.Contains(err.Error(), "checkpoints rm bad") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(filepath.Join(h.Checkpoints(), "other")); err == nil {
		t.Error("it was renamed")
	}
	make1(t, s, "bad", "replaced", checkpoint.Options{Replace: true})
	if c, err := s.Get("bad"); err != nil || len(s.Damaged()) != 1 {
		t.Errorf("replaced: %v, %v; damaged %v", c, err, s.Damaged())
	}
	if err := s.Delete("newer"); err != nil {
		t.Error(err)
	}
	if err := s.Delete("bad"); err != nil {
		t.Error(err)
	}
	make1(t, s, "bad", "again", checkpoint.Options{})
}

func TestThisMachine(t *testing.T) {
	m, n := checkpoint.ThisMachine(), checkpoint.NeedsHere()
	if m.Arch == "" || n.Arch != m.Arch || !slices.IsSorted(n.CPU) || n.Kernel == "" {
		t.Errorf("%+v, %+v", m, n)
	}
	man := checkpoint.Manifest{Needs: n, Base: checkpoint.Base{Kind: checkpoint.EROFS}}
	if err := man.Fits(m); err != nil {
		t.Errorf("what is made here does not fit here: %v", err)
	}
}

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	if err := checkpoint.Room(dir, 1, 1); err != nil {
		t.Errorf("two bytes: %v", err)
	}
	for _, minFree := range []uint64{0, 1, ^uint64(0)} {
		err := checkpoint.Room(dir, ^uint64(0), minFree)
		if !errs.Is(err, errs.InsufficientDisk) || errs.MetaOf(err)["missing_bytes"] == "" {
			t.Errorf("all there is, minFree %d: %v", minFree, err)
		}
	}
}
