//go:build linux

// Command brood-guest is the program that runs as PID 1 in every sandbox.
//
// "brood-guest init" serves the channel on descriptor 3, with the channel's
// magic in BROOD_GUEST_MAGIC (64 hex digits) and the log's two segment files
// on descriptors 4 and 5, opened for reading and writing; what it has to say
// about itself goes to descriptor 2. "brood-guest version" prints the version
// of the protocol. Everything else is package pid1.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"brood/internal/sandbox/guest/logs"
	"brood/internal/sandbox/guest/pid1"
	"brood/internal/sandbox/guest/proto"
)

const (
	channelFD = 3
	logFD     = 4
	magicEnv  = "BROOD_GUEST_MAGIC"
)

// What PID 1 may cost: it is part of every fork's memory. Two processors keep
// its threads few; the collector runs early, and often before the heap would
// take more than the buffers it may hold.
const (
	processors  = 2
	gcPercent   = 50
	memoryLimit = 48 << 20
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "brood-guest:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		_, _ = fmt.Fprintln(os.Stdout, "protocol", proto.Version)
		return nil
	case len(args) == 1 && args[0] == "init":
		return serve()
	}
	return errors.New("usage: brood-guest init | version")
}

func serve() error {
	magic, err := hex.DecodeString(os.Getenv(magicEnv))
	if err != nil || len(magic) != proto.MagicSize {
		return fmt.Errorf("%s must be %d hex digits", magicEnv, 2*proto.MagicSize)
	}
	// Programs must not know it: with it they could speak for the host.
	if err := os.Unsetenv(magicEnv); err != nil {
		return err
	}
	runtime.GOMAXPROCS(processors)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	unix.Umask(0o022)
	defer shield()()
	files, err := inherited()
	if err != nil {
		return err
	}
	s, err := pid1.New(pid1.Config{
		Channel: pid1.Channel(channelFD), Magic: magic, Logs: files,
		OS: pid1.System{}, Root: "/", ReapAll: true, Exit: func() { os.Exit(0) },
	})
	if err != nil {
		return err
	}
	return s.Serve(context.Background())
}

// inherited takes over the descriptors. None of them is for programs.
func inherited() (files [2]logs.File, err error) {
	if err := unix.SetNonblock(channelFD, false); err != nil {
		return files, fmt.Errorf("channel on descriptor %d: %w", channelFD, err)
	}
	// Everything above, also what somebody forgot to close; an old kernel
	// does not know the call, and has only what is ours.
	if unix.CloseRange(channelFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		for fd := channelFD; fd < logFD+len(files); fd++ {
			unix.CloseOnExec(fd)
		}
	}
	for i := range files {
		f := os.NewFile(uintptr(logFD+i), fmt.Sprintf("log%d", i))
		if _, err := f.Stat(); err != nil {
			return files, fmt.Errorf("log on descriptor %d: %w", logFD+i, err)
		}
		files[i] = f
	}
	return files, nil
}

// shield takes the signals that would end a process which does not expect
// them: whatever a program of the sandbox sends, PID 1 stays. They are caught
// and not ignored, because programs would inherit that. It returns what lets
// go of them.
func shield() func() {
	caught := make(chan os.Signal, 1) // never read: sends to it do not wait
	signal.Notify(caught,
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE,
		unix.SIGUSR1, unix.SIGSEGV, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGTERM, unix.SIGSTKFLT,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPWR, unix.SIGSYS)
	return func() { signal.Stop(caught) }
}
