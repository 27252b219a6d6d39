//go:build linux

package pid1_test

import (
	"os"
	"testing"
	"time"

	"brood/internal/sandbox/guest"
)

// A process is listed with what it uses: what is written here is in memory, and
// took time.
func TestPsSaysWhatIsUsed(t *testing.T) {
	b := newBox(t)
	c := b.connect()
	x, err := c.Exec(b.ctx, guest.ExecArgs{ID: "a", Command: sh("while :; do :; done")})
	check(t, err)
	b.eventually("it used processor time", func() bool {
		all, err := c.Ps(b.ctx)
		check(t, err)
		for _, p := range all {
			if p.PID == x.PID && p.UID == os.Getuid() && p.Memory > 64<<10 && p.CPU >= 20*time.Millisecond {
				return true
			}
		}
		return false
	})
}
