//go:build !linux

package worker

import (
	"os"
	"os/signal"
	"syscall"
)

// fromBehind calls f so that it may change the terminal from the background:
// SIGTTOU, which would stop this program, is ignored. Package signal does not
// undo Ignore but by Notify, and only then processes started later do not
// inherit it.
func fromBehind(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	f()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTTOU)
	signal.Stop(c)
}
