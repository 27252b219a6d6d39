package forks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	broodv1 "brood/api/brood/v1"
	"brood/client"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// onLinux has the numbers inside a sandbox of the signals that are passed on;
// some differ on other systems.
var onLinux = map[os.Signal]int{
	syscall.SIGHUP: 1, syscall.SIGINT: 2, syscall.SIGQUIT: 3,
	syscall.SIGUSR1: 10, syscall.SIGUSR2: 12, syscall.SIGTERM: 15,
}

// signals catches the signals of this program for a command in a sandbox.
type signals struct{ c chan os.Signal }

// newSignals catches from now on, so that none is lost while the command
// starts.
func newSignals() *signals {
	s := &signals{c: make(chan os.Signal, 16)}
	signal.Notify(s.c, syscall.SIGWINCH)
	for sig := range onLinux {
		signal.Notify(s.c, sig)
	}
	return s
}

func (s *signals) stop() { signal.Stop(s.c) }

// forward passes signals on until wait returns. screen, when not nil, is the
// terminal whose size the command's follows. A signal that cannot be passed on
// ends the wait: whoever presses Ctrl-C is not kept waiting for a daemon that
// does not answer.
func (s *signals) forward(ctx context.Context, e *client.Execution, screen *os.File, wait func(context.Context) (*broodv1.ExecExit, error)) (*broodv1.ExecExit, error) {
	g := life.NewGroup(ctx)
	var exit *broodv1.ExecExit
	var waitErr, passErr error
	g.Go("command", func(ctx context.Context) error {
		exit, waitErr = wait(ctx)
		return errOver
	})
	g.Go("signals", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case sig := <-s.c:
				if err := pass(ctx, e, screen, sig); err != nil && !execOver(err) {
					passErr = err
					return err
				}
			}
		}
	})
	_ = g.Wait() // both have said above how they ended
	if exit == nil && passErr != nil {
		return nil, passErr
	}
	return exit, waitErr
}

// errOver ends the group when the command has ended.
var errOver = errors.New("the command has ended")

func pass(ctx context.Context, e *client.Execution, screen *os.File, sig os.Signal) error {
	if sig == syscall.SIGWINCH {
		if screen == nil {
			return nil
		}
		cols, rows := cli.Size(screen)
		return e.Resize(ctx, uint32(cols), uint32(rows))
	}
	if err := e.Signal(ctx, onLinux[sig]); err != nil {
		return fmt.Errorf("pass on %s: %w", sig, err)
	}
	return nil
}
