package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/config"
	"brood/internal/home"
	"brood/internal/payload"
	"brood/internal/sandbox"
	"brood/internal/sandbox/batch/exec"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/host"
	"brood/internal/sandbox/image"
	"brood/internal/wire"
)

// Params say how to run a daemon.
type Params struct {
	Home     string
	Version  string
	Settings config.Settings
	Log      io.Writer
	// Driver, when not nil, is used instead of gVisor: how tests put faults
	// between the daemon and the runtime.
	Driver func(*home.Home) (sandbox.Driver, error)
	// Ready is called once the daemon answers; nil is fine.
	Ready func(wire.Discovery)
}

// stopLimit bounds how long a daemon waits for what is under way when it is
// told to stop.
const stopLimit = 20 * time.Second

// Daemon is a running daemon.
type Daemon struct {
	p       Params
	home    *home.Home
	log     *slog.Logger
	driver  sandbox.Driver
	images  *image.Store
	cps     *checkpoint.Store
	host    *host.Host
	batches *exec.Manager
	started time.Time
	program string // this program's path and build, as they were at the start:
	build   string // its file may be replaced meanwhile
	info    wire.Discovery
	stop    context.CancelFunc
	streams context.Context // ends when the daemon is told to stop
	puts    *puts
	creates *creates

	lock     *home.Lock
	lockFile os.FileInfo // of the lock that this daemon holds
	folder   *os.Root    // the home, wherever it is by now
	gone     atomic.Int32
}

// Run serves until ctx ends or somebody asks for Shutdown. AlreadyExists when
// a daemon has this home.
func Run(ctx context.Context, p Params) (err error) {
	if !utf8.ValidString(p.Home) { // its messages could not say where it is
		return errs.New(errs.InvalidArgument, "the home %q is not UTF-8: choose another one with --home or BROOD_HOME", p.Home)
	}
	h, err := home.Open(p.Home)
	if err != nil {
		return err
	}
	lock, err := h.TryLock("daemon")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d := &Daemon{p: p, home: h, lock: lock, started: time.Now(), stop: stop, streams: ctx, puts: newPuts(), creates: newCreates()}
	d.program, d.build = executable(), buildID(p.Version)
	if d.log, err = logger(p); err != nil {
		return err
	}
	if err := d.own(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.folder.Close()) }()
	if err := d.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.serve(ctx)
}

func logger(p Params) (*slog.Logger, error) {
	var level slog.Level
	if p.Settings.LogLevel != "" {
		if err := level.UnmarshalText([]byte(p.Settings.LogLevel)); err != nil {
			return nil, errs.New(errs.InvalidArgument, "log_level %q: use debug, info, warn or error", p.Settings.LogLevel)
		}
	}
	return slog.New(slog.NewTextHandler(p.Log, &slog.HandlerOptions{Level: level})), nil
}

// open composes the parts, inner ones first.
func (d *Daemon) open(ctx context.Context) (err error) {
	minFree := uint64(0)
	if d.p.Settings.MinFree != "" {
		if minFree, err = config.ParseBytes("min_free", d.p.Settings.MinFree); err != nil {
			return err
		}
		minFree = max(minFree, 1) // 0 is said and means none; to the parts it would mean the default
	}
	guest, guestDigest, err := payload.Guest()
	if err != nil {
		return err
	}
	if d.images, err = image.Open(d.home, image.GuestBinary{Bytes: guest, Digest: guestDigest}); err != nil {
		return err
	}
	if d.cps, err = checkpoint.Open(d.home); err != nil {
		return err
	}
	if d.p.Driver == nil {
		d.p.Driver = gvisorDriver
	}
	if d.driver, err = d.p.Driver(d.home); err != nil {
		return err
	}
	fingerprint, err := d.images.Fingerprint()
	if err != nil {
		return err
	}
	starting := d.p.Settings.MaxStarting
	if starting <= 0 {
		starting = 2 * runtime.NumCPU()
	}
	d.host, err = host.Open(ctx, host.Params{
		Home: d.home, Driver: d.driver, Images: d.images, Checkpoints: d.cps, Log: d.log,
		Machine: d.machine(fingerprint), Needs: checkpoint.NeedsHere(), CheckFiles: filesCheck(d.driver),
		IdentityTimeout: time.Duration(d.p.Settings.IdentityTimeout) * time.Second,
		MaxStarting:     starting, MaxSandboxes: d.p.Settings.MaxSandboxes, MinFree: minFree,
	})
	if err != nil {
		return err
	}
	d.batches, err = exec.Open(ctx, exec.Params{Home: d.home, Host: d.host, Checkpoints: d.cps, Log: d.log})
	if err != nil {
		return errors.Join(err, d.host.Close())
	}
	if err := errors.Join(d.host.DropUnused(), d.dropRuntimes()); err != nil {
		return errors.Join(err, d.batches.Close(), d.host.Close())
	}
	d.dropOldHosts()
	return nil
}

// machine is what checkpoints are checked against here.
func (d *Daemon) machine(fingerprint digest.Digest) checkpoint.Machine {
	m := checkpoint.ThisMachine()
	m.Fingerprint = fingerprint
	m.HasRuntime = func(_ string, rt id.Runtime) bool {
		_, err := os.Stat(payload.RuntimePath(d.home, rt))
		return err == nil
	}
	m.HasBase = func(b checkpoint.Base) bool {
		_, err := d.images.Get(b.Digest)
		return err == nil
	}
	m.Stat = func(b checkpoint.Base, path string) (size, mtimeNs int64, err error) {
		return d.images.Stat(b.Digest, path)
	}
	return m
}

// close lets go of everything; sandboxes run on.
func (d *Daemon) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	d.puts.close()
	return errors.Join(d.batches.Close(), d.host.Close(), d.release(ctx))
}

// serve answers on both listeners until ctx ends.
func (d *Daemon) serve(ctx context.Context) (err error) {
	socket, err := listenSocket(d.home.Socket())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.remove(d.home.Socket())) }()
	d.info = wire.Discovery{PID: os.Getpid(), SocketPath: d.home.Socket(), Version: d.p.Version}
	loopback, err := d.listenTCP()
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	if loopback != nil {
		d.info.Token = id.Random(32)
		d.info.LoopbackURL = "http://" + loopback.Addr().String()
	}
	if err := d.announce(); err != nil {
		return errors.Join(err, socket.Close())
	}
	defer func() { err = errors.Join(err, d.remove(d.home.Discovery())) }()

	mux := d.mux()
	g := life.NewGroup(ctx)
	g.Go("home", func(ctx context.Context) error { return d.watchHome(ctx, socket) })
	d.listen(g, "socket", socket, mux)
	if loopback != nil {
		d.listen(g, "loopback", loopback, d.guard(mux))
	}
	d.sign(home.Ready)
	d.log.Info("ready", "socket", d.info.SocketPath, "loopback", d.info.LoopbackURL, "version", d.p.Version)
	if d.p.Ready != nil {
		d.p.Ready(d.info)
	}
	return g.Wait()
}

// listen serves on one listener. When ctx ends, new calls are refused, streams
// end, and what is under way gets the stop limit.
func (d *Daemon) listen(g *life.Group, name string, l net.Listener, handler http.Handler) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	g.Go(name, func(context.Context) error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(name+" stop", func(ctx context.Context) error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if err := srv.Shutdown(end); err != nil {
			return errors.Join(fmt.Errorf("calls under way were cut off: %w", err), srv.Close())
		}
		return nil
	})
}

// listenTCP opens the loopback listener; nil when it is off.
func (d *Daemon) listenTCP() (net.Listener, error) {
	addr := d.p.Settings.Listen
	if addr == "off" {
		return nil, nil
	}
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "listen address %q: write 127.0.0.1:PORT, or off", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errs.New(errs.InvalidArgument, "listen address %q is not a loopback one: the daemon has no TLS, so that its token and your sandboxes would be open to the network; use 127.0.0.1:PORT and forward it", addr)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errs.New(errs.FailedPrecondition, "listen on %s: %w", addr, err)
	}
	return l, nil
}

// executable is this program's path, links resolved.
func executable() string {
	p, err := os.Executable()
	if err == nil {
		p, err = filepath.EvalSymlinks(p)
	}
	if err != nil {
		return ""
	}
	return p
}
