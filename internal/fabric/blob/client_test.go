package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/disk"
	"brood/internal/fabric/blob/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faults change what a server of ours answers; nil ones do not.
type faults struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// serve starts a server and returns a client of it.
func serve(t *testing.T, f faults, c blob.ClientConfig) *blob.Client {
	t.Helper()
	store, err := disk.Open(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	if f.unary != nil {
		options = append(options, grpc.UnaryInterceptor(f.unary))
	}
	if f.stream != nil {
		options = append(options, grpc.StreamInterceptor(f.stream))
	}
	srv := grpc.NewServer(options...)
	server.Register(srv, store, false)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := life.NewGroup(context.Background())
	g.Go("server", func(context.Context) error { return srv.Serve(l) })
	c.Address = "grpc://" + l.Addr().String()
	client, err := blob.Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		if err := errors.Join(g.Wait(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// contents are blobs in memory, by digest.
type contents map[blob.Digest][]byte

func (c contents) add(b []byte) blob.Digest {
	d := blob.Of(b)
	c[d] = b
	return d
}

func (c contents) digests() (list []blob.Digest) {
	for d := range c {
		list = append(list, d)
	}
	return list
}

func (c contents) source(_ context.Context, d blob.Digest, w io.Writer) error {
	_, err := w.Write(c[d])
	return err
}

// sink collects.
func (c contents) sink(mu *sync.Mutex) blob.Sink {
	return func(_ context.Context, d blob.Digest, r io.Reader) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if _, twice := c[d]; twice {
			return fmt.Errorf("%s came twice", d)
		}
		c[d] = b
		return nil
	}
}

// many are blobs of all sizes that matter, half of them compressible.
func many(seed uint64) contents {
	c := contents{}
	random := rand.NewChaCha8([32]byte{byte(seed)})
	for i, n := range []int{0, 1, 511, 512, 5000, 256 << 10, 256<<10 + 1, 1<<20 - 128, 1 << 20, 3 << 20, 9<<20 + 7} {
		b := make([]byte, n)
		if i%2 == 0 {
			_, _ = random.Read(b)
		} else {
			copy(b, bytes.Repeat(fmt.Appendf(nil, "line %d of some text\n", i), n/20+1))
		}
		c.add(b)
	}
	for i := range 500 {
		c.add(fmt.Appendf(nil, "small %d %s", i, strings.Repeat("x", i*20)))
	}
	return c
}

func TestRoundTrip(t *testing.T) {
	for _, instance := range []string{"", "team/a"} {
		c := serve(t, faults{}, blob.ClientConfig{Instance: instance})
		all := many(1)
		list := all.digests()
		if err := c.Upload(t.Context(), append(list, list...), all.source); err != nil {
			t.Fatal(err)
		}
		if missing, err := c.Missing(t.Context(), list); err != nil || len(missing) != 0 {
			t.Fatalf("%d missing, %v", len(missing), err)
		}
		got := contents{}
		var mu sync.Mutex
		if err := c.Download(t.Context(), append(list, list...), got.sink(&mu)); err != nil {
			t.Fatal(err)
		}
		for d, b := range all {
			if !bytes.Equal(got[d], b) {
				t.Errorf("%s came back as %d other bytes", d, len(got[d]))
			}
		}
		// Nothing is sent again.
		if err := c.Upload(t.Context(), list, func(context.Context, blob.Digest, io.Writer) error { return errors.New("sent again") }); err != nil {
			t.Error(err)
		}
	}
}

func TestResults(t *testing.T) {
	c := serve(t, faults{}, blob.ClientConfig{})
	all := contents{}
	out := all.add([]byte("output"))
	action := all.add([]byte("action"))
	if _, err := c.Result(t.Context(), action); !errs.Is(err, errs.NotFound) {
		t.Errorf("a miss is %v", err)
	}
	result := &rexec.ActionResult{OutputFiles: []*rexec.OutputFile{{Path: "f", Digest: out.Proto()}}}
	if err := c.SetResult(t.Context(), action, result); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Result(t.Context(), action); !errs.Is(err, errs.NotFound) {
		t.Errorf("a result whose blob is not there: %v", err)
	}
	if err := c.Upload(t.Context(), all.digests(), all.source); err != nil {
		t.Fatal(err)
	}
	got, err := c.Result(t.Context(), action)
	if err != nil || got.GetOutputFiles()[0].GetPath() != "f" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSourceWithOtherBytes(t *testing.T) {
	c := serve(t, faults{}, blob.ClientConfig{})
	for _, n := range []int{100, 3 << 20} {
		for name, change := range map[string]func([]byte) []byte{
			"other": func(b []byte) []byte { b = slices.Clone(b); b[0]++; return b },
			"short": func(b []byte) []byte { return b[1:] },
			"long":  func(b []byte) []byte { return append(slices.Clone(b), 0) },
		} {
			all := contents{}
			d := all.add(bytes.Repeat([]byte(name), n))
			all[d] = change(all[d])
			if err := c.Upload(t.Context(), []blob.Digest{d}, all.source); !errs.Is(err, errs.DataLoss) {
				t.Errorf("%s %d: %v", name, n, err)
			}
			if missing, err := c.Missing(t.Context(), []blob.Digest{d}); err != nil || len(missing) != 1 {
				t.Errorf("%s %d: it was stored, %v", name, n, err)
			}
		}
	}
}

// lie changes a byte of every answer.
func lie(_ context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(context.Background(), req)
	if r, ok := answer.(*rexec.BatchReadBlobsResponse); ok {
		for _, one := range r.GetResponses() {
			one.Data = append(one.Data[:len(one.Data)-1:len(one.Data)-1], one.Data[len(one.Data)-1]^1)
		}
	}
	return answer, err
}

// changed is a stream whose messages pass through f on their way out.
type changed struct {
	grpc.ServerStream
	f func(*bytestream.ReadResponse) error
}

func (c *changed) SendMsg(m any) error {
	if r, ok := m.(*bytestream.ReadResponse); ok && c.f != nil {
		if err := c.f(r); err != nil {
			return err
		}
	}
	return c.ServerStream.SendMsg(m)
}

func reading(f func(*bytestream.ReadResponse) error) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, &changed{ss, f})
	}
}

func TestWrongBytesAreNeverWhole(t *testing.T) {
	for name, f := range map[string]func(*bytestream.ReadResponse) error{
		"other": func(r *bytestream.ReadResponse) error {
			r.Data = slices.Clone(r.Data)
			r.Data[len(r.Data)/2] ^= 1
			return nil
		},
		"short": func(r *bytestream.ReadResponse) error { r.Data = r.Data[:len(r.Data)-1]; return nil },
		"long":  func(r *bytestream.ReadResponse) error { r.Data = append(slices.Clone(r.Data), 'x'); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, faults{lie, reading(f)}, blob.ClientConfig{})
			all := contents{}
			random := make([]byte, 2<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(random)
			for _, b := range [][]byte{[]byte("small"), bytes.Repeat([]byte("text "), 1000), random, bytes.Repeat([]byte("long text "), 300_000)} {
				d := all.add(b)
				if err := c.Upload(t.Context(), []blob.Digest{d}, all.source); err != nil {
					t.Fatal(err)
				}
				whole := false
				err := c.Download(t.Context(), []blob.Digest{d}, func(_ context.Context, _ blob.Digest, r io.Reader) error {
					_, err := io.Copy(io.Discard, r)
					whole = err == nil
					return err
				})
				if whole || !errs.Is(err, errs.DataLoss) {
					t.Errorf("%d bytes: whole %v, %v", len(b), whole, err)
				}
			}
		})
	}
}

// TestAnEndlessStreamEnds: it brings bytes for ever, and none of the blob.
func TestAnEndlessStreamEnds(t *testing.T) {
	frame := append([]byte{0x50, 0x2a, 0x4d, 0x18, 0xf8, 0xff, 0, 0}, make([]byte, 0xfff8)...) // zstd skips it
	c := serve(t, faults{stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if !strings.HasSuffix(info.FullMethod, "Read") {
			return next(srv, ss)
		}
		for {
			if err := ss.SendMsg(&bytestream.ReadResponse{Data: frame}); err != nil {
				return err
			}
		}
	}}, blob.ClientConfig{})
	d := blob.Of(make([]byte, 2<<20))
	if _, err := c.Fetch(t.Context(), d); !errs.Is(err, errs.DataLoss) {
		t.Errorf("%v", err)
	}
}

// TestABrokenStreamGoesOn: each stream gives two messages and breaks.
func TestABrokenStreamGoesOn(t *testing.T) {
	for _, compressible := range []bool{false, true} {
		var messages, streams atomic.Int64
		c := serve(t, faults{stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if !strings.HasSuffix(info.FullMethod, "Read") {
				return next(srv, ss)
			}
			streams.Add(1)
			return next(srv, &changed{ss, func(*bytestream.ReadResponse) error {
				if messages.Add(1)%3 == 0 {
					return status.Error(codes.Unavailable, "the line broke")
				}
				return nil
			}})
		}}, blob.ClientConfig{})
		b := make([]byte, 4<<20)
		_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
		if compressible {
			for i := range b {
				b[i] &= 3
			}
		}
		all := contents{}
		d := all.add(b)
		if err := c.Upload(t.Context(), []blob.Digest{d}, all.source); err != nil {
			t.Fatal(err)
		}
		got, err := c.Fetch(t.Context(), d)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if streams.Load() < 2 {
			t.Error("no stream broke")
		}
	}
}

func TestOnlyWhatWasRefusedIsSentAgain(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]int{}
	c := serve(t, faults{unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		r, ok := req.(*rexec.BatchUpdateBlobsRequest)
		if !ok {
			return next(ctx, req)
		}
		mu.Lock()
		defer mu.Unlock()
		answer := &rexec.BatchUpdateBlobsResponse{}
		for i, one := range r.GetRequests() {
			sent[one.GetDigest().GetHash()]++
			if i%2 == 1 {
				answer.Responses = append(answer.Responses, &rexec.BatchUpdateBlobsResponse_Response{
					Digest: one.GetDigest(), Status: status.New(codes.Unavailable, "busy").Proto(),
				})
				continue
			}
			some, err := next(ctx, &rexec.BatchUpdateBlobsRequest{Requests: []*rexec.BatchUpdateBlobsRequest_Request{one}})
			if err != nil {
				return nil, err
			}
			answer.Responses = append(answer.Responses, some.(*rexec.BatchUpdateBlobsResponse).GetResponses()...)
		}
		return answer, nil
	}}, blob.ClientConfig{})
	all := contents{}
	for i := range 7 {
		all.add(fmt.Appendf(nil, "blob %d", i))
	}
	if err := c.Upload(t.Context(), all.digests(), all.source); err != nil {
		t.Fatal(err)
	}
	once := 0
	for _, n := range sent {
		if n == 1 {
			once++
		}
	}
	if once != 4 || len(sent) != 7 {
		t.Errorf("sent %v", sent)
	}
}

func TestRetriesAndGivesUp(t *testing.T) {
	var calls atomic.Int64
	fail := int64(2)
	code := codes.Unavailable
	c := serve(t, faults{unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if calls.Add(1) <= fail {
			return nil, status.Error(code, "not now")
		}
		return next(ctx, req)
	}}, blob.ClientConfig{})
	d := []blob.Digest{blob.Of([]byte("x"))}
	if _, err := c.Missing(t.Context(), d); err != nil || calls.Load() != 3 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
	calls.Store(0)
	fail = 1000
	if _, err := c.Missing(t.Context(), d); !errs.Is(err, errs.Unavailable) || calls.Load() != 4 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
	calls.Store(0)
	code = codes.PermissionDenied
	if _, err := c.Missing(t.Context(), d); !errs.Is(err, errs.PermissionDenied) || calls.Load() != 1 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, faults{unary: func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}, blob.ClientConfig{})
	if _, err := c.Missing(ctx, []blob.Digest{blob.Of([]byte("x"))}); !errs.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := blob.Dial(blob.ClientConfig{Address: "grpc://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Limits(ctx); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v", err)
	}
}

func TestServersThatSayLittle(t *testing.T) {
	var answer *rexec.ServerCapabilities
	c := func() *blob.Client {
		return serve(t, faults{unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if _, ok := req.(*rexec.GetCapabilitiesRequest); !ok {
				return next(ctx, req)
			}
			if answer == nil {
				return nil, status.Error(codes.Unimplemented, "no such service")
			}
			return answer, nil
		}}, blob.ClientConfig{})
	}
	if l, err := c().Limits(t.Context()); err != nil || l.Batch == 0 || l.Zstd || !l.Update {
		t.Errorf("no capabilities: %+v, %v", l, err)
	}
	all := many(2)
	if err := c().Upload(t.Context(), all.digests(), all.source); err != nil {
		t.Errorf("no capabilities: %v", err)
	}
	answer = &rexec.ServerCapabilities{}
	if _, err := c().Limits(t.Context()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("no cache: %v", err)
	}
	answer = &rexec.ServerCapabilities{CacheCapabilities: &rexec.CacheCapabilities{DigestFunctions: []rexec.DigestFunction_Value{rexec.DigestFunction_BLAKE3}}}
	if _, err := c().Limits(t.Context()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("another digest function: %v", err)
	}
	answer = &rexec.ServerCapabilities{CacheCapabilities: &rexec.CacheCapabilities{
		ActionCacheUpdateCapabilities: &rexec.ActionCacheUpdateCapabilities{}, MaxBatchTotalSizeBytes: 2000, MaxCasBlobSizeBytes: 1 << 20,
	}}
	strict := c()
	if err := strict.SetResult(t.Context(), blob.Of(nil), &rexec.ActionResult{}); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("results are not taken: %v", err)
	}
	if err := strict.Upload(t.Context(), all.digests(), all.source); !errs.Is(err, errs.ResourceExhausted) {
		t.Errorf("too large: %v", err)
	}
	small := contents{}
	for d, b := range all {
		if d.Size <= 1<<20 {
			small[d] = b
		}
	}
	if err := strict.Upload(t.Context(), small.digests(), small.source); err != nil {
		t.Errorf("small batches: %v", err)
	}
}

func TestHeadersAndInstanceGoAlong(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	note := func(ctx context.Context, what string) {
		md, _ := metadata.FromIncomingContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		seen[what+" "+strings.Join(md.Get("x-team"), ",")] = true
	}
	c := serve(t, faults{
		func(ctx context.Context, req any, i *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if r, ok := req.(interface{ GetInstanceName() string }); ok {
				note(ctx, r.GetInstanceName())
			}
			return next(ctx, req)
		},
		func(srv any, ss grpc.ServerStream, i *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			note(ss.Context(), "stream")
			return next(srv, ss)
		},
	}, blob.ClientConfig{Instance: "i/j", Headers: map[string]string{"X-Team": "red"}})
	all := many(3)
	if err := c.Upload(t.Context(), all.digests(), all.source); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || !seen["i/j red"] || !seen["stream red"] {
		t.Errorf("%v", seen)
	}
}
