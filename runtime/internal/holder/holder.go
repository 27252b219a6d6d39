// Package holder is the first process of the runtime's own namespaces.
//
// It owns the mount and process namespace that all sandboxes of one run
// directory live in, the launcher's listening socket, and the descriptors a
// launcher must not lose. It reaps every orphan (gVisor waits two minutes for
// a zombie), starts the launcher and starts it again when it dies. It knows no
// sandbox and must stay so simple that it never fails: when it ends, the
// kernel ends everything in its namespace.
//
// One loop (Run) owns all state; goroutines only feed it.
package holder

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/keep"

	"golang.org/x/sys/unix"
)

// A launcher that dies at once is started again after a pause that doubles up
// to maxPause; one that lived for steady is started again at once.
const (
	minPause = 10 * time.Millisecond
	maxPause = 2 * time.Second
	steady   = 10 * time.Second
)

type holder struct {
	dir      string
	lock     *os.File
	listener *os.File // the launcher's socket; it outlives launchers, so callers only wait
	state    *os.File // gVisor's state directory, see launcher.StateFD
	hostProc *os.File // /proc as it was: process numbers as the daemon sees them
	store    *keep.Store
	quit     chan struct{}
	group    sync.WaitGroup

	child   int // the launcher, 0 when none
	started time.Time
	pause   time.Duration
}

// Run is the holder's life; it returns the exit code.
func Run(dir string) int {
	ready := os.NewFile(fdReady, "ready")
	// The daemon's terminal is not ours.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	h := &holder{dir: dir, store: keep.NewStore(), quit: make(chan struct{}, 1)}
	if err := h.setUp(); err != nil {
		complain(ready, err)
		return 1
	}
	_, _ = ready.WriteString(readyText)
	_ = ready.Close()
	err := h.loop()
	h.tearDown()
	if err != nil {
		logf("%v", err)
		return 1
	}
	return 0
}

func complain(ready *os.File, err error) {
	head := "0"
	var errno syscall.Errno
	switch {
	case errors.Is(err, errRunning):
		head = "running"
	case errors.As(err, &errno):
		head = fmt.Sprint(int(errno))
	}
	_, _ = fmt.Fprintf(ready, "%s %v", head, err)
}

func (h *holder) setUp() error {
	if os.Getpid() != 1 {
		return errors.New("the holder has to be the first process of its namespace; use the start command")
	}
	unix.Umask(0o077)
	if err := h.takeLock(); err != nil {
		return err
	}
	// Mounts made outside later are seen here, ours are not seen outside, and
	// nothing stays mounted because of us.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	var err error
	if h.hostProc, err = os.Open("/proc"); err != nil {
		return fmt.Errorf("open /proc: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount a /proc of the new namespace: %w", err)
	}
	if err := h.makeState(); err != nil {
		return err
	}
	return h.listen()
}

func (h *holder) takeLock() error {
	path := filepath.Join(h.dir, lockName)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("open lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return fmt.Errorf("%w: %s is locked", errRunning, path)
			}
			return fmt.Errorf("lock %s: %w", path, err)
		}
		// An ending holder removes the file: a lock on what is no longer there
		// would exclude nobody.
		if sameFile(f, path) {
			h.lock = f
			return nil
		}
		_ = f.Close()
	}
}

func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

// lookEvery is how often the holder looks whether its folder is still there.
const lookEvery = 5 * time.Second

// removed says that a file has no name any more. One that was moved, with its
// home for one, has.
func removed(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}

const (
	lockName  = "holder.lock"
	stateName = "state"
)

// stateSize bounds the state directory, which is in memory: a sandbox has some
// 12 KiB there.
const stateSize = "size=256m"

// makeState begins with an empty state directory: what it describes are
// processes that end with the holder, and whose numbers may be others' then. So
// it is in memory: that works when the disk is full, and spares each start the
// making of half a dozen files there, which takes ext4 a millisecond each where
// many were removed within seconds.
func (h *holder) makeState() error {
	path := filepath.Join(h.dir, stateName)
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("clear old state: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if err := unix.Mount("state", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700,"+stateSize); err != nil {
		return fmt.Errorf("mount the state directory: %w", err)
	}
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open state directory: %w", err)
	}
	h.state = f
	return nil
}

func (h *holder) listen() error {
	l, err := launch.Listen(h.dir)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	if h.listener, err = l.File(); err != nil {
		return fmt.Errorf("keep the socket: %w", err)
	}
	return nil
}

// loop runs until the launcher asks for the end, or the machine does.
func (h *holder) loop() error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, unix.SIGTERM)
	again := time.NewTimer(0)
	defer again.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-h.quit:
			return nil
		case <-ends:
			return nil
		case <-look.C:
			if removed(h.lock) {
				return errors.New("its folder was removed, and nobody could reach the sandboxes any more: they end")
			}
		case <-again.C:
			if err := h.startLauncher(); err != nil {
				logf("start launcher: %v", err)
				again.Reset(h.nextPause())
			}
		case <-children:
			if h.reap() {
				again.Reset(h.nextPause())
			}
		}
	}
}

// reap collects every ended child and reports whether the launcher was one.
func (h *holder) reap() (launcherDied bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || pid <= 0:
			return launcherDied
		case pid == h.child:
			logf("launcher %d ended: exit %d, signal %d", pid, status.ExitStatus(), status.Signal())
			h.child = 0
			launcherDied = true
		}
	}
}

func (h *holder) nextPause() time.Duration {
	if time.Since(h.started) > steady {
		h.pause = 0
	}
	p := h.pause
	h.pause = min(max(2*h.pause, minPause), maxPause)
	return p
}

// startLauncher starts a launcher with its own socket to the store. The
// descriptors it gets are numbered in package launcher.
func (h *holder) startLauncher() error {
	h.started = time.Now()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "launcher's end")
	defer func() { _ = theirs.Close() }()
	ours := os.NewFile(uintptr(pair[0]), "holder's end")
	nc, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return err
	}
	conn := launch.NewConn(nc.(*net.UnixConn))
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		_ = conn.Close()
		return err
	}
	defer func() { _ = null.Close() }()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"brood-runtime", "launcher", "--dir", h.dir}, &syscall.ProcAttr{
		Dir: "/",
		Env: launch.Environ(),
		Files: []uintptr{
			null.Fd(), 1, 2,
			h.listener.Fd(), h.state.Fd(), theirs.Fd(), h.hostProc.Fd(),
		},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = conn.Close()
		return err
	}
	h.child = pid
	h.group.Go(func() {
		defer func() { _ = conn.Close() }()
		if err := h.store.Serve(conn, h.askQuit); err != nil {
			logf("launcher %d: %v", pid, err)
		}
	})
	return nil
}

func (h *holder) askQuit() {
	select {
	case h.quit <- struct{}{}:
	default:
	}
}

// tearDown ends every process of the namespace, which would otherwise happen
// an instant later with the holder's own end, and removes what the holder put
// into the run directory.
func (h *holder) tearDown() {
	_ = unix.Kill(-1, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = os.Remove(filepath.Join(h.dir, launch.SocketName))
	state := filepath.Join(h.dir, stateName)
	_ = unix.Unmount(state, unix.MNT_DETACH)
	_ = os.RemoveAll(state)
	_ = os.Remove(filepath.Join(h.dir, lockName))
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s holder: %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}
