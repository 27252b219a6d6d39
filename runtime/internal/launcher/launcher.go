package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/keep"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
)

// Descriptors that the holder gives a launcher. StateFD has to be the same in
// every launcher: gVisor's state files hold paths that go through it, which
// keeps them short and independent of where the home is.
const (
	ListenerFD = 3
	StateFD    = 4
	storeFD    = 5
	hostProcFD = 6
)

// stateRoot is gVisor's state directory as paths name it.
var stateRoot = fmt.Sprintf("/proc/self/fd/%d", StateFD)

// Launcher serves one run directory.
type Launcher struct {
	dir   string
	store *keep.Client
	roots *roots

	mu    sync.Mutex
	boxes map[string]*box

	group  sync.WaitGroup // connections and watches
	closed chan struct{}  // closed when the listener is
}

// Run is the launcher's life; it returns the exit code. It ends only by a
// signal, or when the holder does.
func Run(dir string) int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	unix.Umask(0o077)
	logFile := &boundedLog{path: filepath.Join(dir, "launcher.log")}
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: logFile}})
	log.SetLevel(log.Warning)
	if err := run(dir); err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
		return 1
	}
	return 0
}

func run(dir string) error {
	if os.Getppid() != 1 {
		return errors.New("only the holder starts a launcher; use the start command")
	}
	unix.CloseOnExec(StateFD)
	unix.CloseOnExec(hostProcFD)
	if err := reserve(); err != nil {
		return err
	}
	listener, err := inheritListener(ListenerFD)
	if err != nil {
		return err
	}
	storeConn, err := inheritConn(storeFD)
	if err != nil {
		return err
	}
	l := &Launcher{
		dir:    dir,
		store:  keep.NewClient(launch.NewConn(storeConn)),
		roots:  newRoots(),
		boxes:  map[string]*box{},
		closed: make(chan struct{}),
	}
	if err := l.load(); err != nil {
		return fmt.Errorf("load sandboxes: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return l.serve(ctx, listener)
}

func inheritListener(fd uintptr) (*net.UnixListener, error) {
	f := os.NewFile(fd, "listener")
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take over the socket: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.New("descriptor 3 is no Unix socket")
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}

func inheritConn(fd uintptr) (*net.UnixConn, error) {
	f := os.NewFile(fd, "store")
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("take over the holder's socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("descriptor 5 is no Unix socket")
	}
	return u, nil
}
