package holder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"brood/internal/sandbox/driver/gvisor/launch"

	"golang.org/x/sys/unix"
)

// Descriptors the start command gives the holder, after 0, 1 and 2.
const (
	fdReady = 3 // closed with text in it when setting up failed, empty otherwise
)

// logFD is the descriptor that the caller of start gives it for the log.
const logFD = 3

// Start puts a holder for dir into its namespaces, waits until it has set
// itself up, and returns the exit code for the start command. The holder is
// then nobody's child but the first process's.
func Start(dir string) int {
	err := start(dir)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errRunning):
		fmt.Fprintln(os.Stderr, err)
		return launch.ExitRunning
	case errors.Is(err, errFull):
		fmt.Fprintln(os.Stderr, err)
		return launch.ExitNoDisk
	case errors.Is(err, errFewFiles):
		fmt.Fprintln(os.Stderr, err)
		return launch.ExitRefused
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINVAL):
		fmt.Fprintf(os.Stderr, "%v; %s\n", err, hint())
		return launch.ExitRefused
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

// leastFiles is how many open files a launcher must be allowed: it keeps some
// numbers from 256 on free, and has a few for each sandbox.
const leastFiles = 512

var errFewFiles = errors.New("too few open files are allowed")

func start(dir string) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if files.Max < leastFiles {
		return fmt.Errorf("%w: the hard limit (ulimit -Hn) is %d, set it to %d or more", errFewFiles, files.Max, leastFiles)
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	defer func() { _ = theirs.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	log := os.NewFile(logFD, "log")
	p, err := os.StartProcess("/proc/self/exe", []string{"brood-runtime", "holder", "--dir", dir}, &os.ProcAttr{
		Dir:   "/",
		Env:   launch.Environ(),
		Files: []*os.File{null, log, log, theirs},
		Sys:   namespaces(),
	})
	if err != nil {
		return fmt.Errorf("start the holder in its own namespaces: %w", err)
	}
	_ = theirs.Close()
	text, err := io.ReadAll(io.LimitReader(ready, 4096))
	if err != nil {
		return fmt.Errorf("wait for the holder: %w", err)
	}
	if string(text) == readyText {
		return p.Release()
	}
	state, err := p.Wait()
	if err != nil {
		return fmt.Errorf("wait for the holder: %w", err)
	}
	return explain(string(text), state)
}

// readyText is what the holder writes when it has set itself up; anything
// else is a complaint, headed by the kernel's error number.
const readyText = "ready"

func explain(text string, state *os.ProcessState) error {
	if text == "" {
		return fmt.Errorf("the holder ended while starting: %v", state)
	}
	number, message, _ := strings.Cut(text, " ")
	if number == "running" {
		return fmt.Errorf("%w: %s", errRunning, message)
	}
	n, err := strconv.Atoi(number)
	if err != nil || n == 0 {
		return fmt.Errorf("the holder ended while starting: %s", message)
	}
	if syscall.Errno(n) == unix.ENOSPC {
		return fmt.Errorf("%w: the holder ended while starting: %s", errFull, message)
	}
	return fmt.Errorf("the holder ended while starting: %s: %w", message, syscall.Errno(n))
}

// errFull is for ENOSPC from a holder, which writes; from the kernel's clone it
// means too many namespaces.
var errFull = errors.New("the disk is full, free some space")

var errRunning = errors.New("a holder runs here already")

// namespaces are the holder's: mounts and processes of its own always; users
// too when the caller may not make the others without.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
	}
	if !mayAdmin() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		attr.GidMappingsEnableSetgroups = false
	}
	return attr
}

// mayAdmin reports whether this process has CAP_SYS_ADMIN where it is.
func mayAdmin() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// hint says what an administrator can change when the kernel refuses.
func hint() string {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "user namespaces are restricted by AppArmor: run as root, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give this program an AppArmor profile that allows userns"
	case read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return "user namespaces are off for ordinary users: run as root, or `sysctl kernel.unprivileged_userns_clone=1`"
	case read("/proc/sys/user/max_user_namespaces") == "0":
		return "user namespaces are off: run as root, or `sysctl user.max_user_namespaces=10000`"
	}
	return "the kernel or a container's rules forbid namespaces or mounting /proc here: run as root, or start the container with --privileged or with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
}
