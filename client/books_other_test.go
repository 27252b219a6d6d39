package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"archive/tar"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	"brood/api/brood/v1/broodv1connect"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/base/errs"
)

// execBook runs one command, "cat": what comes in goes out again once the
// input has ended, in pieces, on both outputs.
type execBook struct {
	broodv1connect.UnimplementedExecServiceHandler
	s *server

	mu      sync.Mutex // guards what follows
	in      []byte
	closed  chan struct{}
	signals []int32
	size    [2]uint32
	trip    func(stage string, n int)
}

const piece = 7 // bytes of an output event

func newExecBook(s *server) *execBook {
	return &execBook{s: s, closed: make(chan struct{}), trip: func(string, int) {}}
}

func (b *execBook) Exec(ctx context.Context, r *connect.Request[broodv1.ExecRequest], out *connect.ServerStream[broodv1.ExecEvent]) error {
	if r.Msg.GetSandbox() == "gone" {
		return errs.New(errs.NotFound, "no sandbox %q", r.Msg.GetSandbox())
	}
	if r.Msg.GetArgv()[0] != "cat" {
		return out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: &broodv1.ExecExit{Code: 127, Error: r.Msg.GetArgv()[0] + ": not found"}}})
	}
	if err := out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Started{Started: &broodv1.ExecStarted{ExecId: "x-1", Pid: 42}}}); err != nil {
		return err
	}
	if r.Msg.GetDetach() {
		return nil
	}
	return b.output(ctx, out, 0, 0)
}

func (b *execBook) AttachExec(ctx context.Context, r *connect.Request[broodv1.AttachExecRequest], out *connect.ServerStream[broodv1.ExecEvent]) error {
	return b.output(ctx, out, r.Msg.GetStdoutOffset(), r.Msg.GetStderrOffset())
}

func (b *execBook) output(ctx context.Context, out *connect.ServerStream[broodv1.ExecEvent], o, e uint64) error {
	select {
	case <-b.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	text := bytes.Clone(b.in)
	b.mu.Unlock()
	// Pieces begin where they always begin, so that an attached client is sent
	// some bytes again.
	o, e = o/piece*piece, e/piece*piece
	for i := 0; o < uint64(len(text)) || e < uint64(len(text)); i++ {
		b.trip("output", i)
		ev := &broodv1.ExecEvent{}
		if o <= e {
			end := min(o+piece, uint64(len(text)))
			ev.Event = &broodv1.ExecEvent_Stdout{Stdout: &broodv1.ExecOutput{Offset: o, Data: text[o:end]}}
			o = end
		} else {
			end := min(e+piece, uint64(len(text)))
			ev.Event = &broodv1.ExecEvent_Stderr{Stderr: &broodv1.ExecOutput{Offset: e, Data: text[e:end]}}
			e = end
		}
		if err := out.Send(ev); err != nil {
			return err
		}
	}
	b.trip("exit", 0)
	return out.Send(&broodv1.ExecEvent{Event: &broodv1.ExecEvent_Exit{Exit: &broodv1.ExecExit{Code: 3}}})
}

// WriteStdin takes at most 1000 bytes at once, and cuts the connection now and
// then after it took them.
func (b *execBook) WriteStdin(_ context.Context, r *connect.Request[broodv1.WriteStdinRequest]) (*connect.Response[broodv1.WriteStdinResponse], error) {
	b.mu.Lock()
	have := uint64(len(b.in))
	data := r.Msg.GetData()
	if r.Msg.GetOffset() > have {
		b.mu.Unlock()
		return nil, errs.New(errs.InvalidArgument, "a gap before offset %d", r.Msg.GetOffset())
	}
	data = data[min(have-r.Msg.GetOffset(), uint64(len(data))):]
	b.in = append(b.in, data[:min(1000, len(data))]...)
	have = uint64(len(b.in))
	b.mu.Unlock()
	b.trip("stdin", int(have))
	return connect.NewResponse(&broodv1.WriteStdinResponse{NextOffset: have}), nil
}

func (b *execBook) CloseStdin(context.Context, *connect.Request[broodv1.CloseStdinRequest]) (*connect.Response[broodv1.CloseStdinResponse], error) {
	b.end()
	return connect.NewResponse(&broodv1.CloseStdinResponse{}), nil
}

func (b *execBook) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
}

func (b *execBook) SignalExec(_ context.Context, r *connect.Request[broodv1.SignalExecRequest]) (*connect.Response[broodv1.SignalExecResponse], error) {
	b.mu.Lock()
	b.signals = append(b.signals, r.Msg.GetSignal())
	b.mu.Unlock()
	b.end()
	return connect.NewResponse(&broodv1.SignalExecResponse{}), nil
}

func (b *execBook) ResizeExec(_ context.Context, r *connect.Request[broodv1.ResizeExecRequest]) (*connect.Response[broodv1.ResizeExecResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = [2]uint32{r.Msg.GetCols(), r.Msg.GetRows()}
	return connect.NewResponse(&broodv1.ResizeExecResponse{}), nil
}

// fileBook is the inside of a sandbox: a folder. It keeps tar streams and
// unpacks nothing but what the tests look at.
type fileBook struct {
	broodv1connect.UnimplementedFileServiceHandler
	root string

	mu      sync.Mutex // guards what follows
	put     map[string]*bytes.Buffer
	target  map[string]string
	aborted int
	full    bool // take no more
}

func newFileBook(t *testing.T) *fileBook {
	return &fileBook{root: t.TempDir(), put: map[string]*bytes.Buffer{}, target: map[string]string{}}
}

func (b *fileBook) StatFile(_ context.Context, r *connect.Request[broodv1.StatFileRequest]) (*connect.Response[broodv1.StatFileResponse], error) {
	st, err := os.Stat(filepath.Join(b.root, r.Msg.GetPath()))
	if err != nil {
		return nil, errs.New(errs.NotFound, "%w", err)
	}
	kind := broodv1.FileType_FILE_TYPE_REGULAR
	if st.IsDir() {
		kind = broodv1.FileType_FILE_TYPE_DIRECTORY
	}
	return connect.NewResponse(&broodv1.StatFileResponse{Info: &broodv1.FileInfo{Path: r.Msg.GetPath(), Type: kind}}), nil
}

func (b *fileBook) BeginPut(_ context.Context, r *connect.Request[broodv1.BeginPutRequest]) (*connect.Response[broodv1.BeginPutResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put["p"], b.target["p"] = &bytes.Buffer{}, r.Msg.GetPath()
	return connect.NewResponse(&broodv1.BeginPutResponse{PutId: "p"}), nil
}

func (b *fileBook) WritePut(_ context.Context, r *connect.Request[broodv1.WritePutRequest]) (*connect.Response[broodv1.WritePutResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.put[r.Msg.GetPutId()]
	if b.full {
		return nil, errs.With(errs.New(errs.InsufficientDisk, "the sandbox's disk is full"), "missing", "1")
	}
	if r.Msg.GetOffset() != uint64(p.Len()) {
		return nil, errs.New(errs.InvalidArgument, "offset %d, have %d", r.Msg.GetOffset(), p.Len())
	}
	p.Write(r.Msg.GetData()[:min(300_000, len(r.Msg.GetData()))])
	return connect.NewResponse(&broodv1.WritePutResponse{NextOffset: uint64(p.Len())}), nil
}

func (b *fileBook) EndPut(_ context.Context, r *connect.Request[broodv1.EndPutRequest]) (*connect.Response[broodv1.EndPutResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Msg.GetAbort() {
		b.aborted++
		return connect.NewResponse(&broodv1.EndPutResponse{}), nil
	}
	n, err := unpack(b.put["p"], filepath.Join(b.root, b.target["p"]))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&broodv1.EndPutResponse{Entries: n}), nil
}

// unpack trusts the tests' own tar streams.
func unpack(r io.Reader, dir string) (uint64, error) {
	tr := tar.NewReader(r)
	for n := uint64(0); ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		p := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(p, 0o700)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, p)
		default:
			var data []byte
			if data, err = io.ReadAll(tr); err == nil {
				if err = os.WriteFile(p, data, 0o600); err == nil {
					err = os.Chmod(p, h.FileInfo().Mode().Perm())
				}
			}
			if err == nil {
				err = os.Chtimes(p, h.ModTime, h.ModTime)
			}
		}
		if err != nil {
			return n, err
		}
	}
}

func (b *fileBook) GetFiles(_ context.Context, r *connect.Request[broodv1.GetFilesRequest], out *connect.ServerStream[broodv1.GetFilesResponse]) error {
	var all bytes.Buffer
	tw := tar.NewWriter(&all)
	top := filepath.Join(b.root, r.Msg.GetPath())
	err := filepath.Walk(top, func(p string, st os.FileInfo, err error) error {
		if err != nil {
			return errs.New(errs.NotFound, "%w", err)
		}
		link, _ := os.Readlink(p)
		h, err := tar.FileInfoHeader(st, link)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(filepath.Dir(top), p)
		h.Name, h.Format = rel, tar.FormatPAX
		if st.Mode().IsRegular() {
			h.Mode |= 0o4000 // the client drops setuid
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if st.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			_, err = tw.Write(data)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	_ = tw.Close()
	for data := all.Bytes(); len(data) > 0; {
		n := min(1000, len(data))
		if err := out.Send(&broodv1.GetFilesResponse{Data: data[:n]}); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// creation sends progress, then the sandbox; for "broken" it fails in the
// middle.
type creation struct {
	broodv1connect.UnimplementedSandboxServiceHandler
}

func (creation) CreateSandbox(_ context.Context, r *connect.Request[broodv1.CreateSandboxRequest], out *connect.ServerStream[broodv1.CreateSandboxResponse]) error {
	name := r.Msg.GetCreate().GetName()
	for _, phase := range []string{"preparing", "booting"} {
		if err := out.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Progress{Progress: &daemonv1.CreateSandboxProgress{Phase: phase}}}); err != nil {
			return err
		}
	}
	switch name {
	case "broken":
		return errs.New(errs.AlreadyExists, "a sandbox %q exists: use another name", name)
	case "silent":
		return nil
	}
	return out.Send(&broodv1.CreateSandboxResponse{Event: &broodv1.CreateSandboxResponse_Result{Result: &broodv1.CreateSandboxResult{Sandbox: &daemonv1.Sandbox{Name: name}}}})
}

type imports struct {
	broodv1connect.UnimplementedImageServiceHandler
}

func (imports) ImportImage(_ context.Context, r *connect.Request[broodv1.ImportImageRequest], out *connect.ServerStream[broodv1.ImportImageResponse]) error {
	if err := out.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Progress{Progress: &broodv1.ImportImageProgress{Entries: 1}}}); err != nil {
		return err
	}
	return out.Send(&broodv1.ImportImageResponse{Event: &broodv1.ImportImageResponse_Result{Result: &broodv1.Image{Name: r.Msg.GetName(), Origin: r.Msg.GetPath()}}})
}

type logLines struct{}

func (logLines) GetLogs(_ context.Context, r *connect.Request[broodv1.GetLogsRequest], out *connect.ServerStream[broodv1.GetLogsResponse]) error {
	for i := range r.Msg.GetTail() {
		if err := out.Send(&broodv1.GetLogsResponse{Stream: r.Msg.GetStream(), Data: []byte(strings.Repeat("x", int(i)) + "\n"), Time: timestamppb.Now()}); err != nil {
			return err
		}
	}
	if r.Msg.GetFollow() {
		return errs.New(errs.Unavailable, "the sandbox ended")
	}
	return nil
}
