//go:build linux

package pid1_test

import (
	"os"
	"path/filepath"
	"testing"

	"brood/internal/base/id"
	"brood/internal/sandbox/guest"
)

// TestWhatNobodyWatchesIsNotHeldUp: a program that was left to itself writes
// more than is kept of it, and ends.
func TestWhatNobodyWatchesIsNotHeldUp(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	done := filepath.Join(t.TempDir(), "done")
	_, err := c.Leave(b.ctx, guest.ExecArgs{ID: "left", Command: sh("head -c 3000000 /dev/zero; echo last; echo >" + done)})
	check(t, err)
	exit, err := c.WaitExec(b.ctx, id.Exec("left"))
	check(t, err)
	if _, err := os.Stat(done); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	a, err := c.Attach(b.ctx, guest.AttachArgs{ID: "left"})
	check(t, err)
	defer a.Close()
	var last guest.Output
	for err == nil {
		var out guest.Output
		if out, err = a.Next(); err == nil {
			last = out
			last.Data = append([]byte{}, out.Data...)
		}
	}
	if n := len(last.Data); n < 5 || string(last.Data[n-5:]) != "last\n" || a.Stdout == 0 {
		t.Errorf("kept from %d on, at the end %q", a.Stdout, last.Data[max(0, n-10):])
	}
}
