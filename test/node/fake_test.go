//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/proto"

	broodv1 "brood/api/brood/v1"
	"brood/api/brood/v1/broodv1connect"
	v1 "brood/api/cua/daemon/v1"
	"brood/api/cua/daemon/v1/daemonv1connect"
)

const fakeToken = "right"

// fake answers as a daemon would, with made-up forks; spoil lets it break a
// rule. It exists to show that the script notices.
type fake struct {
	daemonv1connect.UnimplementedForkBatchServiceHandler
	daemonv1connect.UnimplementedSandboxServiceHandler
	daemonv1connect.UnimplementedDaemonServiceHandler
	broodv1connect.UnimplementedExecServiceHandler
	broodv1connect.UnimplementedBatchServiceHandler

	spoil spoil

	mu      sync.Mutex
	batches map[string]story // by key
}

// story is a batch and all its events.
type story struct {
	id     string
	events []*v1.ForkSandboxBatchResponse
}

// spoil is how a fake breaks the contract.
type spoil struct {
	events   func([]*v1.ForkSandboxBatchResponse) []*v1.ForkSandboxBatchResponse
	noHeader bool
	noKey    bool   // the key makes another batch each time
	gap      bool   // AttachBatch counts wrongly
	hostname string // what every fork believes it is
	open     bool   // anyone is let in
	lenient  bool   // a wrong request makes an empty batch
	sick     bool   // health says so
	mute     bool   // reflection lists nothing
	pid      uint32 // 0: 7
}

func (f *fake) ForkSandboxBatch(_ context.Context, req *connect.Request[v1.ForkSandboxBatchRequest], out *connect.ServerStream[v1.ForkSandboxBatchResponse]) error {
	m := req.Msg
	if !f.spoil.lenient {
		if m.Source != "base" {
			return refusal(connect.CodeNotFound, v1.DaemonErrorReason_DAEMON_ERROR_REASON_NOT_FOUND)
		}
		if m.Count == 0 || len(m.Groups) > 0 {
			return refusal(connect.CodeInvalidArgument, v1.DaemonErrorReason_DAEMON_ERROR_REASON_INVALID_ARGUMENT)
		}
	}
	key := req.Header().Get("brood-batch-key")
	f.mu.Lock()
	told, ok := f.batches[key]
	if !ok || f.spoil.noKey {
		told = story{id: fmt.Sprintf("b-%d", len(f.batches)), events: events(m)}
		if f.spoil.events != nil {
			told.events = f.spoil.events(told.events)
		}
		if ok {
			key += "-again"
		}
		f.batches[key] = told
	}
	f.mu.Unlock()
	if !f.spoil.noHeader {
		out.ResponseHeader().Set("brood-batch-id", told.id)
	}
	for _, e := range told.events {
		if err := out.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func refusal(code connect.Code, reason v1.DaemonErrorReason) error {
	err := connect.NewError(code, errors.New("refused"))
	if detail, derr := connect.NewErrorDetail(&v1.DaemonErrorInfo{Reason: reason, Message: "refused"}); derr == nil {
		err.AddDetail(detail)
	}
	return err
}

// events is the story of a batch that goes well: placements, the items last
// to first, the summary.
func events(m *v1.ForkSandboxBatchRequest) []*v1.ForkSandboxBatchResponse {
	size := m.GroupSize
	if size == 0 {
		size = max(1, m.Count)
	}
	prefix := m.NamePrefix
	if prefix == "" {
		prefix = m.Source + "-a1b2c3"
	}
	var all []*v1.ForkSandboxBatchResponse
	for g := uint32(0); g*size < m.Count; g++ {
		all = append(all, placed(&v1.ForkBatchPlacement{
			Group: g, Source: m.Source, Host: "local", Count: min(size, m.Count-g*size), Attempt: 1, Reason: "this machine",
		}))
	}
	for n := m.Count; n > 0; n-- {
		name := fmt.Sprintf("%s-%d", prefix, n-1)
		all = append(all, &v1.ForkSandboxBatchResponse{
			Event: &v1.ForkSandboxBatchResponse_Item{Item: &v1.ForkBatchItem{
				Index: n - 1, Group: (n - 1) / size, Source: m.Source, Name: name, Host: "local", Space: "local:" + name,
				Attempt: 1, ElapsedMs: 20, ForkMs: 10,
			}},
			Sandbox: &v1.Sandbox{Name: name, Id: "local:" + name, State: v1.SandboxState_SANDBOX_STATE_RUNNING},
		})
	}
	return append(all, &v1.ForkSandboxBatchResponse{Event: &v1.ForkSandboxBatchResponse_Done{Done: &v1.ForkBatchSummary{
		Ok: m.Count, ElapsedMs: 30, PerHost: map[string]uint32{"local": m.Count}, PeakParallel: map[string]uint32{"local": 1},
	}}})
}

func placed(p *v1.ForkBatchPlacement) *v1.ForkSandboxBatchResponse {
	return &v1.ForkSandboxBatchResponse{Event: &v1.ForkSandboxBatchResponse_Placement{Placement: p}}
}

func (f *fake) AttachBatch(_ context.Context, req *connect.Request[broodv1.AttachBatchRequest], out *connect.ServerStream[broodv1.AttachBatchResponse]) error {
	f.mu.Lock()
	var told story
	for _, s := range f.batches {
		if s.id == req.Msg.BatchId {
			told = s
		}
	}
	f.mu.Unlock()
	for i, e := range told.events {
		n := uint64(i) + 1
		if f.spoil.gap && i > 1 {
			n++
		}
		if err := out.Send(&broodv1.AttachBatchResponse{Sequence: n, Event: e}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Exec(_ context.Context, req *connect.Request[broodv1.ExecRequest], out *connect.ServerStream[broodv1.ExecEvent]) error {
	name := req.Msg.Sandbox
	if f.spoil.hostname != "" {
		name = f.spoil.hostname
	}
	return errors.Join(
		out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Started{Started: &broodv1.ExecStarted{ExecId: "x", Pid: 2}}}),
		out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Stdout{Stdout: &broodv1.ExecOutput{Data: []byte(name + "\n")}}}),
		out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: &broodv1.ExecExit{}}}))
}

func (f *fake) DeleteSandbox(context.Context, *connect.Request[v1.DeleteSandboxRequest]) (*connect.Response[v1.DeleteSandboxResponse], error) {
	return connect.NewResponse(&v1.DeleteSandboxResponse{}), nil
}

func (f *fake) GetInfo(_ context.Context, req *connect.Request[v1.GetInfoRequest]) (*connect.Response[v1.GetInfoResponse], error) {
	pid := uint32(7)
	if f.spoil.pid > 0 && req.Peer().Protocol == connect.ProtocolGRPCWeb {
		pid = f.spoil.pid
	}
	return connect.NewResponse(&v1.GetInfoResponse{Pid: pid, Version: "fake"}), nil
}

// mux routes the fake as the daemon does.
func (f *fake) mux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(daemonv1connect.NewForkBatchServiceHandler(f))
	const alias = "/cua.daemon.v1.SandboxService/ForkSandboxBatch"
	mux.Handle(alias, connect.NewServerStreamHandler(alias, f.ForkSandboxBatch))
	mux.Handle(daemonv1connect.NewSandboxServiceHandler(f))
	mux.Handle(daemonv1connect.NewDaemonServiceHandler(f))
	mux.Handle(broodv1connect.NewExecServiceHandler(f))
	mux.Handle(broodv1connect.NewBatchServiceHandler(f))
	names := []string{daemonv1connect.ForkBatchServiceName, daemonv1connect.SandboxServiceName, daemonv1connect.DaemonServiceName,
		broodv1connect.ExecServiceName, broodv1connect.BatchServiceName}
	health := grpchealth.NewStaticChecker(names...)
	if f.spoil.sick {
		health.SetStatus("", grpchealth.StatusNotServing)
	}
	mux.Handle(grpchealth.NewHandler(health))
	if f.spoil.mute {
		names = nil
	}
	mux.Handle(grpcreflect.NewHandlerV1(grpcreflect.NewStaticReflector(names...)))
	return mux
}

// serve starts the fake on a socket or on loopback, and returns the script's
// target and token.
func (f *fake) serve(t *testing.T, network string) (target, token string) {
	t.Helper()
	f.batches = map[string]story{}
	handler := f.mux()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "brood")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	} else if !f.spoil.open {
		handler = guarded(handler)
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Listener.Close()
	server.Listener = listener
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	if network == "unix" {
		return "unix:" + address, ""
	}
	return "http://" + listener.Addr().String(), fakeToken
}

// guarded lets only requests with the token in, as the daemon does.
func guarded(next http.Handler) http.Handler {
	say := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+fakeToken {
			_ = say.Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("no token")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// edit returns a spoiler that changes a copy of event i, counted from the end
// when negative.
func edit(i int, change func(*v1.ForkSandboxBatchResponse)) func([]*v1.ForkSandboxBatchResponse) []*v1.ForkSandboxBatchResponse {
	return func(all []*v1.ForkSandboxBatchResponse) []*v1.ForkSandboxBatchResponse {
		at := i
		if at < 0 {
			at += len(all)
		}
		all[at] = proto.CloneOf(all[at])
		change(all[at])
		return all
	}
}
