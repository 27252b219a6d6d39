package forks

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// A daemon that was ready and does not answer is named soon, with what to do;
// one that starts has its time.
func TestWhoHasTheHomeIsNamed(t *testing.T) {
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := h.TryLock("daemon")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	for state, code := range map[string]errs.Code{home.Ready: errs.Unavailable, home.Starting: errs.OK} {
		if err := lock.Sign(state); err != nil {
			t.Fatal(err)
		}
		w := holder{home: h, since: time.Now().Add(-2 * heldLimit), told: true}
		err := w.wait(t.Context())
		if errs.CodeOf(err) != code {
			t.Errorf("%s: %v", state, err)
		}
		if want := fmt.Sprintf("kill %d", os.Getpid()); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s in it", state, err, want)
		}
	}
}
