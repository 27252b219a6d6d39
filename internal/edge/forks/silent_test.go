package forks

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
	"brood/internal/home"
)

// heldHome is a home whose lock this process holds, as a daemon does.
func heldHome(t *testing.T) *home.Home {
	t.Helper()
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lock, err := h.TryLock("daemon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	if err := lock.Sign(home.Ready); err != nil {
		t.Fatal(err)
	}
	return h
}

// A daemon that takes connections and does not answer is said to, and given up
// with what to do; it is no reason to start another.
func TestASilentDaemonIsGivenUp(t *testing.T) {
	h := heldHome(t)
	l, err := home.ListenSocket(h.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var said bytes.Buffer
	a := &app{App: cli.New()}
	a.Home, a.Err = h.Dir(), &said
	_, err = a.reachIn(t.Context(), patience{10 * time.Millisecond, 30 * time.Millisecond})
	if !errs.Is(err, errs.Unavailable) || absent(err) {
		t.Errorf("%v", err)
	}
	pid := os.Getpid()
	for _, want := range []string{fmt.Sprintf("(pid %d)", pid), "brood daemon restart", fmt.Sprintf("kill -CONT %d", pid), fmt.Sprintf("kill -9 %d", pid)} {
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, fmt.Sprintf("(pid %d) does not answer", pid)) {
		t.Errorf("it was said %q", text)
	}
	if peer := peerOf(t.Context(), h); peer != pid {
		t.Errorf("the peer is %d, not %d", peer, pid)
	}
}

// A process in the number of a daemon that does not have its socket is left
// alone.
func TestAStrangerIsNotEnded(t *testing.T) {
	h := heldHome(t)
	var said bytes.Buffer
	a := &app{App: cli.New()}
	a.Home, a.Err = h.Dir(), &said
	if _, err := a.end(t.Context(), h); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "cannot be told") {
		t.Errorf("%v", err) // else this very process would have ended
	}
}
