//go:build linux

// Command probe is the program that drivertest runs inside sandboxes: it
// holds every kind of state that has to survive a capture, and tells on
// question what became of it.
//
// "probe state" is a main command: it answers lines on two ports, one served
// by Go's poller, one by a blocking accept. The other words are small programs
// for execs. It knows nothing of brood and must stay static: a root may hold
// nothing else. Questions are answered one at a time.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The steps of what counts: in memory, and into files, which costs more.
const (
	tick     = 20 * time.Millisecond
	fileTick = 100 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: probe state | child | ticks FILE | cat | terminal FILE | daemon FILE | exit CODE | write PATH TEXT | hang")
	}
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch args[0] {
	case "state":
		return serve()
	case "child":
		return child()
	case "ticks":
		return ticks(arg(1))
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "terminal":
		return terminal(arg(1))
	case "daemon", "daemon-2", "daemon-3":
		return daemon(args[0], arg(1))
	case "exit":
		code, err := strconv.Atoi(arg(1))
		if err == nil {
			os.Exit(code)
		}
		return err
	case "write":
		return os.WriteFile(arg(1), []byte(arg(2)), 0o644)
	case "hang":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		for range time.Tick(time.Hour) {
			continue
		}
	}
	return fmt.Errorf("unknown word %q", args[0])
}

// ticks prints a number a line and keeps the last one in a file.
func ticks(file string) error {
	for n := 1; ; n++ {
		fmt.Println(n) // a stream that nobody reads any more is no reason to end
		if err := replace(file, strconv.Itoa(n)); err != nil {
			return err
		}
		time.Sleep(fileTick)
	}
}

// replace writes a file by rename: nobody reads half of it.
func replace(path, text string) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// daemon leaves its parent's session and tree by the usual two forks, and
// counts into a file.
func daemon(word, file string) error {
	next := map[string]string{"daemon": "daemon-2", "daemon-2": "daemon-3"}[word]
	if next == "" {
		for n := 1; ; n++ {
			if err := replace(file, fmt.Sprintf("%d %d", n, os.Getppid())); err != nil {
				return err
			}
			time.Sleep(fileTick)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = os.StartProcess("/proc/self/exe", []string{os.Args[0], next, file}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{null, null, null}, Sys: &syscall.SysProcAttr{Setsid: word == "daemon"},
	})
	return err
}
