// Package procs finds, names and ends the processes that gVisor starts for
// containers.
//
// Numbers in gVisor's state files may be other processes' by now; this package
// checks who a process is before it does anything to it. It knows processes by
// their command lines alone and is safe for concurrent use.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"brood/internal/base/errs"

	"golang.org/x/sys/unix"
)

// Identity tells whether a command line is that of the process meant: gVisor's
// helpers carry their container in it.
type Identity func(argv []string) bool

// IsSandbox knows the sandbox process of container id: it is the last word.
func IsSandbox(id string) Identity {
	return func(argv []string) bool {
		return len(argv) > 1 && argv[0] == "runsc-sandbox" && argv[len(argv)-1] == id
	}
}

// IsGofer knows the file server by its bundle, which is one word.
func IsGofer(bundle string) Identity {
	return func(argv []string) bool {
		return len(argv) > 1 && argv[0] == "runsc-gofer" && slices.Contains(argv, bundle)
	}
}

// CommandLine returns pid's words; none for a process that has ended.
func CommandLine(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
}

// Alive reports whether pid runs; a zombie does not.
func Alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which is in parentheses and may hold any.
	i := bytes.LastIndexByte(b, ')')
	return i > 0 && i+2 < len(b) && b[i+2] != 'Z' && b[i+2] != 'X'
}

// Kill ends pid if it is the process meant, without waiting.
func Kill(pid int, is Identity) {
	if fd := pinAndKill(pid, is); fd >= 0 {
		_ = unix.Close(fd)
	}
}

// pinAndKill ends pid if it is the process meant and returns a descriptor of
// it, or -1. The descriptor pins the process, so that what is checked is what
// is killed. A process without a command line is on its way out already, and
// is taken for the one meant: it is only waited for.
func pinAndKill(pid int, is Identity) int {
	if pid <= 1 {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	argv := CommandLine(pid)
	if len(argv) > 0 && !is(argv) {
		_ = unix.Close(fd)
		return -1
	}
	if len(argv) > 0 {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	return fd
}

// killWait bounds how long a killed process may take to be gone. A sandbox
// with much memory takes its time to give it back.
const killWait = 30 * time.Second

// KillAndWait ends pid if it is the process meant and waits until it has
// ended. It reports whether gVisor may still take the number for its own: it
// is our child's until we reap it.
func KillAndWait(pid int, is Identity) bool {
	fd := pinAndKill(pid, is)
	if fd < 0 {
		return IsOurChild(pid)
	}
	defer func() { _ = unix.Close(fd) }()
	deadline := time.Now().Add(killWait)
	for time.Now().Before(deadline) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			break
		}
	}
	if IsOurChild(pid) {
		return true
	}
	// Somebody else reaps it in a moment: the holder, or who waits for its end.
	for unix.PidfdSendSignal(fd, 0, nil, 0) == nil && time.Now().Before(deadline) {
		time.Sleep(200 * time.Microsecond)
	}
	return false
}

// IsOurChild reports whether pid is a child of this process, ended or not.
func IsOurChild(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid())
}

// KillAll ends every helper of container id that is still there, whatever the
// state says, and waits until they are gone.
func KillAll(id, bundle string) error {
	sandbox, gofer := IsSandbox(id), IsGofer(bundle)
	either := func(argv []string) bool { return sandbox(argv) || gofer(argv) }
	for pid := range processes() {
		if !either(CommandLine(pid)) {
			continue
		}
		KillAndWait(pid, either)
		if IsOurChild(pid) {
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
		if Alive(pid) && either(CommandLine(pid)) {
			return errs.New(errs.Internal, "process %d does not end", pid)
		}
	}
	return nil
}

// KillStarting ends the sandbox process of container id if there is one, without
// waiting. It is the first process of its namespace, whose others end with it.
func KillStarting(id string) {
	is := IsSandbox(id)
	for pid := range processes() {
		if is(CommandLine(pid)) {
			Kill(pid, is)
		}
	}
}

// SandboxIDs returns the containers that have a sandbox process.
func SandboxIDs() map[string]bool {
	ids := map[string]bool{}
	for pid := range processes() {
		if argv := CommandLine(pid); len(argv) > 1 && argv[0] == "runsc-sandbox" {
			ids[argv[len(argv)-1]] = true
		}
	}
	return ids
}

func processes() map[int]bool {
	pids := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return pids
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 1 {
			pids[pid] = true
		}
	}
	return pids
}

// HostPID translates a process number into the namespace the holder was
// started in, by what the /proc of that namespace says of a descriptor that
// pins the process.
func HostPID(hostProc, pid int) int {
	if pid <= 0 {
		return 0
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/self/fdinfo/%d", hostProc, fd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
	}
	return 0
}
