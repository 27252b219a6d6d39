package launcher

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"brood/internal/base/errs"

	"golang.org/x/sys/unix"
)

// gVisor's helpers carry the container in their command line: the sandbox as
// its last word, the file server in the path of its bundle. That tells a
// process from a stranger that got its number later.

type identity func(argv []string) bool

func isSandbox(id string) identity {
	return func(argv []string) bool {
		return len(argv) > 1 && argv[0] == "runsc-sandbox" && argv[len(argv)-1] == id
	}
}

func isGofer(id string) identity {
	bundle := bundleDir(id)
	return func(argv []string) bool {
		return len(argv) > 1 && argv[0] == "runsc-gofer" && slices.Contains(argv, bundle)
	}
}

// commandLine returns pid's words; none for a process that has ended.
func commandLine(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
}

// alive reports whether pid runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which is in parentheses and may hold any.
	i := bytes.LastIndexByte(b, ')')
	return i > 0 && i+2 < len(b) && b[i+2] != 'Z' && b[i+2] != 'X'
}

// kill ends pid if it is the process meant. The descriptor pins it, so that
// what is checked is what is killed.
func kill(pid int, is identity) bool {
	if pid <= 1 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if !is(commandLine(pid)) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// killWait bounds how long a killed process may take to be gone. A sandbox
// with much memory takes its time to give it back.
const killWait = 30 * time.Second

// killAndWait ends pid if it is the process meant and waits until it has
// ended. It reports whether gVisor may still take the number for its own: it
// is our child's until we reap it.
func killAndWait(pid int, is identity) bool {
	if !kill(pid, is) {
		return isOurChild(pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(killWait.Milliseconds()))
	if isOurChild(pid) {
		return true
	}
	// The holder reaps it in a moment.
	for deadline := time.Now().Add(killWait); unix.Kill(pid, 0) == nil && time.Now().Before(deadline); {
		time.Sleep(200 * time.Microsecond)
	}
	return false
}

// isOurChild reports whether pid is a child of this process, ended or not.
func isOurChild(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid())
}

// killAll ends every helper of container id that is still there, whatever the
// state says, and waits until they are gone.
func killAll(id string) error {
	sandbox, gofer := isSandbox(id), isGofer(id)
	either := func(argv []string) bool { return sandbox(argv) || gofer(argv) }
	for pid := range processes() {
		if !either(commandLine(pid)) {
			continue
		}
		killAndWait(pid, either)
		if isOurChild(pid) {
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
		if alive(pid) && either(commandLine(pid)) {
			return errs.New(errs.Internal, "process %d does not end", pid)
		}
	}
	return nil
}

// helperIDs returns the containers that have a sandbox process.
func helperIDs() map[string]bool {
	ids := map[string]bool{}
	for pid := range processes() {
		if argv := commandLine(pid); len(argv) > 1 && argv[0] == "runsc-sandbox" {
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

// hostPID translates a process number into the namespace the holder was
// started in, by what the /proc of that namespace says of a descriptor that
// pins the process.
func hostPID(pid int) int {
	if pid <= 0 {
		return 0
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/self/fdinfo/%d", hostProcFD, fd))
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
