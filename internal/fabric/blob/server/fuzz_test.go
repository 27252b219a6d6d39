package server

import (
	"bytes"
	"context"
	"io"
	"testing"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"brood/internal/fabric/blob"
	"brood/internal/fabric/blob/disk"
)

// incoming is a stream of given messages; outgoing counts what is sent.
type incoming struct {
	grpc.ServerStream
	ctx  context.Context
	list []*bytestream.WriteRequest
}

func (i *incoming) Context() context.Context { return i.ctx }

func (i *incoming) Recv() (*bytestream.WriteRequest, error) {
	if len(i.list) == 0 {
		return nil, io.EOF
	}
	m := i.list[0]
	i.list = i.list[1:]
	return m, nil
}

func (i *incoming) SendAndClose(*bytestream.WriteResponse) error { return nil }

type outgoing struct {
	grpc.ServerStream
	ctx   context.Context
	bytes int
}

func (o *outgoing) Context() context.Context { return o.ctx }

func (o *outgoing) Send(r *bytestream.ReadResponse) error { o.bytes += len(r.GetData()); return nil }

type folders struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (f *folders) Context() context.Context { return f.ctx }

func (f *folders) Send(r *rexec.GetTreeResponse) error { f.n += len(r.GetDirectories()); return nil }

// FuzzHandlers gives every method a message made of any bytes: it answers or
// refuses, and what it stores is what it says it is.
func FuzzHandlers(f *testing.F) {
	hello := blob.Of([]byte("hello"))
	add := func(method uint8, m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(method, b, []byte("hello"))
	}
	add(0, &rexec.FindMissingBlobsRequest{BlobDigests: []*rexec.Digest{hello.Proto()}})
	add(1, &rexec.BatchUpdateBlobsRequest{Requests: []*rexec.BatchUpdateBlobsRequest_Request{{Digest: hello.Proto(), Data: []byte("hello")}, {Digest: hello.Proto(), Compressor: 1}}})
	add(2, &rexec.BatchReadBlobsRequest{Digests: []*rexec.Digest{hello.Proto()}, AcceptableCompressors: []rexec.Compressor_Value{1}})
	add(3, &rexec.GetTreeRequest{RootDigest: hello.Proto(), PageSize: 1, PageToken: "1"})
	add(4, &rexec.GetActionResultRequest{ActionDigest: hello.Proto()})
	add(5, &rexec.UpdateActionResultRequest{ActionDigest: hello.Proto(), ActionResult: &rexec.ActionResult{
		OutputFiles: []*rexec.OutputFile{{Path: "f", Digest: hello.Proto()}}, OutputDirectories: []*rexec.OutputDirectory{{TreeDigest: hello.Proto()}},
	}})
	add(6, &bytestream.ReadRequest{ResourceName: "blobs/" + hello.String(), ReadOffset: 2, ReadLimit: 2})
	add(7, &bytestream.WriteRequest{ResourceName: "uploads/u/blobs/" + hello.String(), FinishWrite: true})
	add(7, &bytestream.WriteRequest{ResourceName: "uploads/u/compressed-blobs/zstd/" + hello.String(), FinishWrite: true})
	add(8, &bytestream.QueryWriteStatusRequest{ResourceName: "uploads/u/blobs/" + hello.String()})

	store, err := disk.Open(f.TempDir(), 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	defer store.Close()
	s := &service{store: store}
	if err := store.Put(hello, bytes.NewReader([]byte("hello"))); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method uint8, message, extra []byte) {
		err := handle(t.Context(), s, method, message, extra)
		if c := status.Code(err); c == codes.Internal || c == codes.Unknown {
			t.Fatalf("method %d: %v", method, err)
		}
		if b, err := s.read(hello.Proto()); err == nil && string(b) != "hello" {
			t.Fatalf("hello became %q", b)
		}
	})
}

func handle(ctx context.Context, s *service, method uint8, message, extra []byte) (err error) {
	parse := func(m proto.Message) bool { return proto.Unmarshal(message, m) == nil }
	switch method % 9 {
	case 0:
		if r := new(rexec.FindMissingBlobsRequest); parse(r) {
			_, err = s.FindMissingBlobs(ctx, r)
		}
	case 1:
		if r := new(rexec.BatchUpdateBlobsRequest); parse(r) {
			_, err = s.BatchUpdateBlobs(ctx, r)
		}
	case 2:
		if r := new(rexec.BatchReadBlobsRequest); parse(r) {
			_, err = s.BatchReadBlobs(ctx, r)
		}
	case 3:
		if r := new(rexec.GetTreeRequest); parse(r) {
			err = s.GetTree(r, &folders{ctx: ctx})
		}
	case 4:
		if r := new(rexec.GetActionResultRequest); parse(r) {
			_, err = s.GetActionResult(ctx, r)
		}
	case 5:
		if r := new(rexec.UpdateActionResultRequest); parse(r) {
			_, err = s.UpdateActionResult(ctx, r)
		}
	case 6:
		if r := new(bytestream.ReadRequest); parse(r) {
			err = s.Read(r, &outgoing{ctx: ctx})
		}
	case 7:
		if r := new(bytestream.WriteRequest); parse(r) {
			last := &bytestream.WriteRequest{WriteOffset: int64(len(r.GetData())), Data: extra, FinishWrite: true}
			err = s.Write(&incoming{ctx: ctx, list: []*bytestream.WriteRequest{r, last}})
		}
	case 8:
		if r := new(bytestream.QueryWriteStatusRequest); parse(r) {
			_, err = s.QueryWriteStatus(ctx, r)
		}
	}
	return err
}
