//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brood/internal/base/life"
)

// ctxT shortens the literals of goroutines.
type ctxT = context.Context

// terminal is a program as it runs in a terminal's session: it answers lines,
// and tells in a file how often it looked and whether the terminal is one. A
// hangup ends it, as it does a shell.
func terminal(file string) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	g := life.NewGroup(context.Background())
	g.Go("lines", func(ctxT) error {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			fmt.Printf("you typed %s\n", lines.Text())
		}
		return nil
	})
	for n := 1; ; n++ {
		select {
		case <-hangup:
			return replace(file, "hangup")
		case <-time.After(fileTick):
		}
		_, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
		tty, openErr := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if openErr == nil {
			openErr = tty.Close()
		}
		if err := replace(file, fmt.Sprintf("%d %t %t", n, err == nil, openErr == nil)); err != nil {
			return err
		}
	}
}
