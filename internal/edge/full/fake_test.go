package full_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	"brood/api/brood/v1/broodv1connect"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/forks"
	"brood/internal/home"
	"brood/internal/wire"
)

// fake is a daemon whose sandboxes are folders and whose commands are
// processes of this machine. It keeps everything in memory and answers as the
// protocol says, so that the command line's own behaviour can be tested
// without a runtime.
type fake struct {
	params forks.DaemonParams
	home   *home.Home
	stop   context.CancelFunc
	group  *life.Group

	mu          sync.Mutex // guards all below
	sandboxes   map[string]*box
	checkpoints map[string]*broodv1.Checkpoint
	batches     []*fakeBatch // oldest first
	images      []*broodv1.Image
	puts        map[string]*fakePut
	creating    map[string]context.CancelFunc
	next        int
}

// box is a sandbox.
type box struct {
	name    string
	dir     string
	request *broodv1.CreateSandboxRequest
	origin  *broodv1.ForkOrigin
	execs   map[string]*fakeExec
	made    *timestamppb.Timestamp
}

func (b *box) message() *daemonv1.Sandbox {
	return &daemonv1.Sandbox{
		Name: b.name, Id: "local:" + b.name, State: daemonv1.SandboxState_SANDBOX_STATE_RUNNING, Image: b.request.GetCreate().GetImage(),
		Labels: b.request.GetCreate().GetLabels(), Location: "local", Kind: "container", Runtime: "fake", CreatedAt: b.made,
		Services: b.request.GetCreate().GetServices(), Ephemeral: b.request.GetCreate().GetOwnerPid() != 0,
	}
}

// fakeLife ends a daemon whose test was killed and could not stop it.
const fakeLife = 15 * time.Minute

// runFake is the daemon of the tests.
func runFake(ctx context.Context, p forks.DaemonParams) (err error) {
	if text := os.Getenv("BROOD_FAKE_BROKEN"); text != "" {
		fmt.Fprintln(p.Log, "looking around")
		if os.Getenv("BROOD_FAKE_FULL") != "" {
			return errs.New(errs.InsufficientDisk, "%s", text)
		}
		return errs.New(errs.FailedPrecondition, "%s", text)
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
	ctx, stop := context.WithTimeout(ctx, fakeLife)
	defer stop()
	if v := os.Getenv("BROOD_FAKE_VERSION"); v != "" {
		p.Version = v
	}
	f := &fake{
		params: p, home: h, stop: stop, group: life.NewGroup(ctx), sandboxes: map[string]*box{}, checkpoints: map[string]*broodv1.Checkpoint{},
		puts: map[string]*fakePut{}, creating: map[string]context.CancelFunc{},
	}
	l, err := home.ListenSocket(h.Socket())
	if err != nil {
		return err
	}
	defer os.Remove(h.Socket())
	d := wire.Discovery{PID: os.Getpid(), SocketPath: h.Socket(), Version: p.Version, Token: "secret"}
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(h.Discovery(), b, 0o600); err != nil {
		return err
	}
	defer os.Remove(h.Discovery())
	srv := &http.Server{Handler: f.mux(), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	f.group.Go("serve", func(context.Context) error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	f.log("ready")
	if p.Ready != nil {
		p.Ready(d)
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // for answers under way
	defer cancel()
	if err := srv.Shutdown(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	f.killAll()
	return errors.Join(srv.Close(), f.group.Stop())
}

// killAll ends the commands of all sandboxes.
func (f *fake) killAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.sandboxes {
		b.kill()
	}
}

// log tells the scripts how far the daemon is.
func (f *fake) log(format string, args ...any) {
	fmt.Fprintf(f.params.Log, format+"\n", args...)
}

func (f *fake) mux() http.Handler {
	mux := http.NewServeMux()
	opts := connect.WithInterceptors(coded{})
	mux.Handle(daemonv1connect.NewDaemonServiceHandler(&fakeInfo{f}, opts))
	mux.Handle(daemonv1connect.NewRuntimeServiceHandler(&fakeDoctor{}, opts))
	mux.Handle(daemonv1connect.NewSandboxServiceHandler(&fakeSandboxes{f: f}, opts))
	mux.Handle(daemonv1connect.NewForkBatchServiceHandler(&fakeForks{f}, opts))
	mux.Handle(broodv1connect.NewSandboxServiceHandler(&fakeMore{f}, opts))
	mux.Handle(broodv1connect.NewExecServiceHandler(&fakeExecs{f: f}, opts))
	mux.Handle(broodv1connect.NewFileServiceHandler(&fakeFiles{f}, opts))
	mux.Handle(broodv1connect.NewLogServiceHandler(&fakeLogs{f}, opts))
	mux.Handle(broodv1connect.NewCheckpointServiceHandler(&fakeCheckpoints{f}, opts))
	mux.Handle(broodv1connect.NewBatchServiceHandler(&fakeBatches{f}, opts))
	mux.Handle(broodv1connect.NewImageServiceHandler(&fakeImages{f}, opts))
	return mux
}

// coded puts errors into the form of the wire.
type coded struct{}

func (coded) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		r, err := next(ctx, req)
		if err != nil {
			return nil, wire.Error(err)
		}
		return r, nil
	}
}

func (coded) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (coded) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error { return wire.Error(next(ctx, conn)) }
}

// add makes a sandbox; the lock is held.
func (f *fake) add(name string, req *broodv1.CreateSandboxRequest) (*box, error) {
	if _, taken := f.sandboxes[name]; taken {
		return nil, errs.New(errs.AlreadyExists, "sandbox %s exists: choose another name", name)
	}
	dir := filepath.Join(f.home.Dir(), "boxes", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := &box{name: name, dir: dir, request: req, execs: map[string]*fakeExec{}, made: timestamppb.Now()}
	f.sandboxes[name] = b
	return b, nil
}

func (f *fake) box(name string) (*box, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.sandboxes[strings.TrimPrefix(name, "local:")]
	if !ok {
		return nil, errs.New(errs.NotFound, "no sandbox is called %q", name)
	}
	return b, nil
}

// id draws a number that no other thing has; the lock is held.
func (f *fake) id(prefix string) string {
	f.next++
	return fmt.Sprintf("%s%04d", prefix, f.next)
}

type fakeInfo struct{ f *fake }

func (s *fakeInfo) GetInfo(context.Context, *connect.Request[daemonv1.GetInfoRequest]) (*connect.Response[daemonv1.GetInfoResponse], error) {
	return connect.NewResponse(&daemonv1.GetInfoResponse{
		Version: s.f.params.Version, Pid: uint32(os.Getpid()), SocketPath: s.f.home.Socket(), LoopbackToken: "secret",
		Features: slices.Sorted(slices.Values(envNames())), Executable: "fake",
	}), nil
}

// envNames lets a script look at the daemon's environment.
func envNames() []string {
	var names []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, "env:"+name)
	}
	return names
}

func (s *fakeInfo) Shutdown(context.Context, *connect.Request[daemonv1.ShutdownRequest]) (*connect.Response[daemonv1.ShutdownResponse], error) {
	s.f.stop()
	return connect.NewResponse(&daemonv1.ShutdownResponse{}), nil
}

type fakeDoctor struct{}

func (fakeDoctor) Doctor(context.Context, *connect.Request[daemonv1.DoctorRequest]) (*connect.Response[daemonv1.DoctorResponse], error) {
	r := &daemonv1.DoctorResponse{Checks: []*daemonv1.RuntimeCheck{
		{Name: "disk", Status: daemonv1.CheckStatus_CHECK_STATUS_OK, Detail: "12 GB free"},
		{Name: "cgroups", Status: daemonv1.CheckStatus_CHECK_STATUS_INSTALLABLE, Detail: "limits cannot be enforced\nfix: run as root"},
		{Name: "kvm", Status: daemonv1.CheckStatus_CHECK_STATUS_NOT_APPLICABLE, Detail: "not needed"},
	}}
	if os.Getenv("BROOD_FAKE_SICK") != "" {
		r.Checks = append(r.Checks, &daemonv1.RuntimeCheck{Name: "namespaces", Status: daemonv1.CheckStatus_CHECK_STATUS_ERROR, Detail: "refused by AppArmor\nfix: sysctl kernel.apparmor_restrict_unprivileged_userns=0"})
	}
	return connect.NewResponse(r), nil
}

type fakeImages struct{ f *fake }

func (s *fakeImages) ListImages(context.Context, *connect.Request[broodv1.ListImagesRequest]) (*connect.Response[broodv1.ListImagesResponse], error) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	return connect.NewResponse(&broodv1.ListImagesResponse{Images: s.f.images}), nil
}

func (s *fakeImages) ImportImage(_ context.Context, req *connect.Request[broodv1.ImportImageRequest], stream *connect.ServerStream[broodv1.ImportImageResponse]) error {
	if _, err := os.Stat(req.Msg.GetPath()); err != nil || !filepath.IsAbs(req.Msg.GetPath()) {
		return errs.New(errs.NotFound, "there is no %s", req.Msg.GetPath())
	}
	i := &broodv1.Image{Digest: strings.Repeat("ab", 32), Name: req.Msg.GetName(), Kind: "folder", Origin: req.Msg.GetPath(), SizeBytes: 4096, CreatedAt: timestamppb.Now()}
	s.f.mu.Lock()
	s.f.images = append(s.f.images, i)
	s.f.mu.Unlock()
	if err := stream.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Progress{Progress: &broodv1.ImportImageProgress{Entries: 1, Bytes: 10}}}); err != nil {
		return err
	}
	return stream.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Result{Result: i}})
}
