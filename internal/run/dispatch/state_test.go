package dispatch_test

import (
	"testing"

	"brood/internal/base/errs"
	"brood/internal/run/dispatch"
)

func TestDamagedStateIsRefused(t *testing.T) {
	p := newWorld(3).p
	for _, b := range []string{"", "{", "[]", `{"format":1}`, `{"format":9,"tasks":[]}`, `{"format":1,"tasks":[],"ready":[7]}`} {
		if _, err := dispatch.Decode(p, []byte(b)); !errs.Is(err, errs.DataLoss) && !errs.Is(err, errs.Unsupported) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// FuzzDecode: whatever is read is refused, or a decider that can be written.
func FuzzDecode(f *testing.F) {
	w := newWorld(3)
	m, err := dispatch.New(w.p)
	if err != nil {
		f.Fatal(err)
	}
	m.Step(nil)
	b, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := dispatch.Decode(w.p, b)
		if err != nil {
			return
		}
		if _, err := again(w.p, m); err != nil {
			t.Error(err)
		}
	})
}
