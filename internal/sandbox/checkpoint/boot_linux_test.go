package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// TestTemporaryOnesAreLookedAtAfterAReboot: they are not synced, so what the
// machine lost may be missing from them.
func TestTemporaryOnesAreLookedAtAfterAReboot(t *testing.T) {
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"whole": {Temporary: "b-1"}, "torn": {Temporary: "b-1"}, "adopted": {Temporary: "b-1"}, "durable": {}} {
		if err := produce(s, id.Name(name), "new", o); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Adopt("adopted"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"torn", "durable"} { // zeros of the right size: what a power loss leaves
		p := filepath.Join(h.Checkpoints(), name, "files", "pages")
		if err := os.WriteFile(p, make([]byte, 300_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(reopen(t, h)); got != 4 {
		t.Fatalf("in the same boot %d of 4 are there", got)
	}
	for _, name := range []string{"whole", "torn"} {
		p := filepath.Join(h.Checkpoints(), name, recordName)
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(b), bootID(), "another boot", 1)
		if other == string(b) {
			t.Fatalf("the record of %s does not name the boot: %s", name, b)
		}
		if err := os.WriteFile(p, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := reopen(t, h)
	if len(list) != 3 || list[0].Name != "adopted" || list[1].Name != "durable" || list[2].Name != "whole" {
		t.Fatalf("after a reboot: %v", list)
	}
	if list[2].Record.Boot != "" || list[2].Record.Temporary != "b-1" || list[0].Record.Temporary != "" || list[0].Record.Boot != "" {
		t.Errorf("records: %+v, %+v", list[2].Record, list[0].Record)
	}
	if _, err := os.Stat(filepath.Join(h.Checkpoints(), "torn")); !os.IsNotExist(err) {
		t.Errorf("the torn one is still there: %v", err)
	}
	if err := s.Verify(t.Context(), "durable", nil); !errs.Is(err, errs.DataLoss) {
		t.Errorf("durable ones are not hashed at Open, and Verify finds it: %v", err)
	}
}

func reopen(t *testing.T, h *home.Home) []Checkpoint {
	t.Helper()
	s, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	return s.List()
}
