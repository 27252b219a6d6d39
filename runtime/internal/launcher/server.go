package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/sandbox/driver/gvisor/launch"
	"brood/runtime/internal/filters"
	"brood/runtime/internal/keep"
	"brood/runtime/internal/procs"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/version"
)

// waitPatience bounds how long one wait request is held.
const waitPatience = 20 * time.Second

// maxConns bounds the requests served at once; more callers wait in the
// socket's queue.
const maxConns = 1024

// serve answers connections until the listener fails.
func (l *Launcher) serve(ctx context.Context, listener *net.UnixListener) error {
	slots := make(chan struct{}, maxConns)
	for {
		slots <- struct{}{}
		c, err := listener.Accept()
		if err != nil {
			<-slots
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		l.group.Go(func() {
			defer func() { <-slots }()
			defer func() { _ = c.Close() }()
			if err := l.serveConn(ctx, c); err != nil {
				fmt.Fprintf(os.Stderr, "%s launcher: connection: %v\n", time.Now().UTC().Format(time.RFC3339), err)
			}
		})
	}
}

func (l *Launcher) serveConn(ctx context.Context, c net.Conn) error {
	u, err := asUnix(c)
	if err != nil {
		return err
	}
	cred, err := launch.Peer(u)
	if err != nil {
		return err
	}
	// In a user namespace only the owner is mapped, to 0 like this process.
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("refused uid %d", cred.Uid)
	}
	conn := launch.NewConn(u)
	for {
		var req launch.Request
		files, err := conn.Receive(&req)
		if gone(err) {
			return nil
		}
		if err != nil {
			// The frame's end is not known, so this is the last answer.
			_ = conn.Send(&launch.Response{Failure: launch.NewFailure(errs.New(errs.InvalidArgument, "%w", err))})
			return err
		}
		resp, file := l.answer(ctx, &req, files)
		for _, f := range files {
			_ = f.Close()
		}
		var send []*os.File
		if file != nil {
			send = append(send, file)
		}
		err = conn.Send(resp, send...)
		if file != nil {
			_ = file.Close()
		}
		if err != nil && !gone(err) {
			return err
		}
		if req.Op == launch.OpStop && resp.Failure == nil {
			return l.store.Quit()
		}
	}
}

// gone reports whether the caller went away, as one does who was interrupted
// while it waited: nothing that a log has to say.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// answer performs one request. The caller closes files and the returned one.
func (l *Launcher) answer(ctx context.Context, req *launch.Request, files []*os.File) (*launch.Response, *os.File) {
	resp := &launch.Response{}
	var file *os.File
	err := req.Validate(len(files))
	if err == nil {
		switch req.Op {
		case launch.OpInfo:
			resp.Info = info()
		case launch.OpCreate:
			file, err = l.create(req.Create, files)
		case launch.OpStart:
			err = l.start(req.ID)
		case launch.OpRestore:
			err = l.restore(req.ID, req.Dir, files[0])
		case launch.OpCheckpoint:
			err = l.checkpoint(req.ID, req.Dir, files[0])
		case launch.OpDestroy:
			err = l.destroy(req.ID)
		case launch.OpList:
			resp.Containers = l.list()
		case launch.OpChannel:
			file, err = l.channel(req.ID)
		case launch.OpWait:
			resp.Exit, err = l.wait(ctx, req.ID)
			resp.Pending = err == nil && resp.Exit == nil
		case launch.OpStop:
			err = l.stop(req.Force)
		}
	}
	if err != nil {
		return &launch.Response{Failure: launch.NewFailure(diskFull(err))}, nil
	}
	return resp, file
}

// diskFull gives the errors of gVisor's other processes their code: they come
// as text only, in which the kernel's words are all there is to know them by.
func diskFull(err error) error {
	if errs.CodeOf(err) == errs.Internal && strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return errs.New(errs.InsufficientDisk, "%w: the disk is full, free some space", err)
	}
	return err
}

func info() *launch.Info {
	return &launch.Info{
		Protocol:    launch.Protocol,
		Version:     version.Version(),
		Arch:        runtime.GOARCH,
		HolderPID:   procs.HostPID(hostProcFD, 1),
		LauncherPID: procs.HostPID(hostProcFD, os.Getpid()),
		Precompiled: filters.Available(),
	}
}

func (l *Launcher) all() []*box {
	l.mu.Lock()
	defer l.mu.Unlock()
	boxes := make([]*box, 0, len(l.boxes))
	for _, b := range l.boxes {
		boxes = append(boxes, b)
	}
	return boxes
}

func (l *Launcher) list() []launch.Container {
	var out []launch.Container
	for _, b := range l.all() {
		out = append(out, b.describe())
	}
	slices.SortFunc(out, func(a, b launch.Container) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (l *Launcher) channel(id string) (*os.File, error) {
	if _, err := l.find(id); err != nil {
		return nil, err
	}
	f, err := l.store.Get(id)
	if errors.Is(err, keep.ErrNone) {
		return nil, errs.New(errs.FailedPrecondition, "container %s has no channel", id)
	}
	return f, err
}

// wait returns nil when the container still runs after waitPatience.
func (l *Launcher) wait(ctx context.Context, id string) (*launch.Exit, error) {
	b, err := l.find(id)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(waitPatience)
	defer patience.Stop()
	select {
	case <-b.ended:
		b.view.Lock()
		defer b.view.Unlock()
		return b.exit, nil
	case <-patience.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stop prepares the end: with force every container is destroyed.
func (l *Launcher) stop(force bool) error {
	boxes := l.all()
	if len(boxes) > 0 && !force {
		return errs.New(errs.FailedPrecondition, "%d containers exist; destroy them first, or stop with force", len(boxes))
	}
	var failed error
	for _, b := range boxes {
		failed = errors.Join(failed, l.destroy(b.id))
	}
	return failed
}
