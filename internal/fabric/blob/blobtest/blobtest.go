package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"brood/internal/fabric/blob"
)

// suite is a server under test.
type suite struct {
	conn     *grpc.ClientConn
	instance string
	caps     *rexec.CacheCapabilities
	cas      rexec.ContentAddressableStorageClient
	actions  rexec.ActionCacheClient
	stream   bytestream.ByteStreamClient
}

// Run tests the server behind conn, in the instance that is named.
func Run(t *testing.T, conn *grpc.ClientConn, instance string) {
	s := &suite{
		conn: conn, instance: instance, cas: rexec.NewContentAddressableStorageClient(conn),
		actions: rexec.NewActionCacheClient(conn), stream: bytestream.NewByteStreamClient(conn),
	}
	answer, err := rexec.NewCapabilitiesClient(conn).GetCapabilities(limit(t), &rexec.GetCapabilitiesRequest{InstanceName: instance})
	if err != nil {
		t.Fatalf("capabilities: %v", err)
	}
	s.caps = answer.GetCacheCapabilities()
	for name, f := range map[string]func(*testing.T){
		"Capabilities":      s.capabilities,
		"Batch":             s.batch,
		"BatchWrongDigest":  s.batchWrongDigest,
		"BatchZstd":         s.batchZstd,
		"Empty":             s.empty,
		"Stream":            s.streams,
		"StreamOffsets":     s.offsets,
		"StreamWrongDigest": s.streamWrongDigest,
		"StreamBroken":      s.streamBroken,
		"StreamTwice":       s.streamTwice,
		"StreamZstd":        s.streamZstd,
		"BadNames":          s.badNames,
		"Results":           s.results,
		"Tree":              s.tree,
	} {
		t.Run(name, f)
	}
}

// limit bounds a call: a server that does not answer fails.
func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// random is a blob that no server has.
func random(t *testing.T, n int) ([]byte, blob.Digest) {
	t.Helper()
	b := make([]byte, n)
	rand.Read(b)
	return b, blob.Of(b)
}

// text is a blob that compresses.
func text(t *testing.T, n int) ([]byte, blob.Digest) {
	t.Helper()
	seed, _ := random(t, 16)
	b := bytes.Repeat(append([]byte("a line of text that repeats "), seed...), n/40+1)[:n]
	return b, blob.Of(b)
}

func wants(t *testing.T, err error, want ...codes.Code) {
	t.Helper()
	if !slices.Contains(want, status.Code(err)) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func (s *suite) missing(t *testing.T, list ...blob.Digest) []string {
	t.Helper()
	r := &rexec.FindMissingBlobsRequest{InstanceName: s.instance}
	for _, d := range list {
		r.BlobDigests = append(r.BlobDigests, d.Proto())
	}
	answer, err := s.cas.FindMissingBlobs(limit(t), r)
	if err != nil {
		t.Fatal(err)
	}
	var hashes []string
	for _, d := range answer.GetMissingBlobDigests() {
		hashes = append(hashes, d.GetHash())
	}
	return hashes
}

func (s *suite) put(t *testing.T, d blob.Digest, data []byte, c rexec.Compressor_Value) error {
	t.Helper()
	answer, err := s.cas.BatchUpdateBlobs(limit(t), &rexec.BatchUpdateBlobsRequest{
		InstanceName: s.instance,
		Requests:     []*rexec.BatchUpdateBlobsRequest_Request{{Digest: d.Proto(), Data: data, Compressor: c}},
	})
	if err != nil {
		return err
	}
	if len(answer.GetResponses()) != 1 {
		t.Fatalf("%d answers to one blob", len(answer.GetResponses()))
	}
	return status.FromProto(answer.GetResponses()[0].GetStatus()).Err()
}

// get reads one blob in a batch.
func (s *suite) get(t *testing.T, d blob.Digest, accept ...rexec.Compressor_Value) ([]byte, rexec.Compressor_Value, error) {
	t.Helper()
	answer, err := s.cas.BatchReadBlobs(limit(t), &rexec.BatchReadBlobsRequest{
		InstanceName: s.instance, Digests: []*rexec.Digest{d.Proto()}, AcceptableCompressors: accept,
	})
	if err != nil {
		return nil, 0, err
	}
	if len(answer.GetResponses()) != 1 {
		t.Fatalf("%d answers to one blob", len(answer.GetResponses()))
	}
	r := answer.GetResponses()[0]
	return r.GetData(), r.GetCompressor(), status.FromProto(r.GetStatus()).Err()
}

func (s *suite) name(d blob.Digest, upload, zstd bool) string {
	n := blob.Name{Instance: s.instance, Blob: d, Zstd: zstd}
	if upload {
		n.Upload = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	}
	return n.String()
}

// write uploads data in pieces under a name; finish says whether the last
// message says that it is the last.
func (s *suite) write(t *testing.T, name string, data []byte, piece int, finish bool) (int64, error) {
	t.Helper()
	stream, err := s.stream.Write(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; ; {
		k := min(piece, len(data)-at)
		r := &bytestream.WriteRequest{WriteOffset: int64(at), Data: data[at : at+k], FinishWrite: finish && at+k == len(data)}
		if at == 0 {
			r.ResourceName = name
		}
		if err := stream.Send(r); err != nil {
			if errors.Is(err, io.EOF) {
				break // it answered already
			}
			t.Fatal(err)
		}
		if at += k; at == len(data) {
			break
		}
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetCommittedSize(), err
}

// read downloads a resource.
func (s *suite) read(t *testing.T, name string, offset, most int64) ([]byte, error) {
	t.Helper()
	stream, err := s.stream.Read(limit(t), &bytestream.ReadRequest{ResourceName: name, ReadOffset: offset, ReadLimit: most})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		b = append(b, m.GetData()...)
	}
}

func (s *suite) capabilities(t *testing.T) {
	if !slices.Contains(s.caps.GetDigestFunctions(), rexec.DigestFunction_SHA256) {
		t.Errorf("digest functions %v", s.caps.GetDigestFunctions())
	}
	if s.caps.GetMaxBatchTotalSizeBytes() < 0 || s.caps.GetMaxCasBlobSizeBytes() < 0 {
		t.Errorf("limits below zero: %v", s.caps)
	}
}

func (s *suite) batch(t *testing.T) {
	a, da := random(t, 1000)
	b, db := random(t, 1)
	_, dc := random(t, 20)
	if got := s.missing(t, da, db, dc); len(got) != 3 {
		t.Fatalf("%d of 3 unknown blobs are missing", len(got))
	}
	answer, err := s.cas.BatchUpdateBlobs(limit(t), &rexec.BatchUpdateBlobsRequest{
		InstanceName: s.instance, DigestFunction: rexec.DigestFunction_SHA256,
		Requests: []*rexec.BatchUpdateBlobsRequest_Request{{Digest: da.Proto(), Data: a}, {Digest: db.Proto(), Data: b}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range answer.GetResponses() {
		wants(t, status.FromProto(r.GetStatus()).Err(), codes.OK)
	}
	if got := s.missing(t, da, db, dc); !slices.Equal(got, []string{string(dc.Hash)}) {
		t.Errorf("missing %v", got)
	}
	reads, err := s.cas.BatchReadBlobs(limit(t), &rexec.BatchReadBlobsRequest{
		InstanceName: s.instance, Digests: []*rexec.Digest{dc.Proto(), db.Proto(), da.Proto()},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reads.GetResponses() {
		err := status.FromProto(r.GetStatus()).Err()
		switch r.GetDigest().GetHash() {
		case string(da.Hash):
			if err != nil || !bytes.Equal(r.GetData(), a) {
				t.Errorf("blob a: %v", err)
			}
		case string(db.Hash):
			if err != nil || !bytes.Equal(r.GetData(), b) {
				t.Errorf("blob b: %v", err)
			}
		default:
			wants(t, err, codes.NotFound)
		}
	}
	if len(reads.GetResponses()) != 3 {
		t.Errorf("%d answers to three blobs", len(reads.GetResponses()))
	}
}

func (s *suite) batchWrongDigest(t *testing.T) {
	b, _ := random(t, 100)
	_, other := random(t, 100)
	wants(t, s.put(t, other, b, rexec.Compressor_IDENTITY), codes.InvalidArgument)
	short := blob.Of(b)
	short.Size--
	if err := s.put(t, short, b, rexec.Compressor_IDENTITY); err == nil {
		t.Error("a blob of another size was taken")
	}
	if got := s.missing(t, other); len(got) != 1 {
		t.Error("the wrong blob is there")
	}
}

func (s *suite) batchZstd(t *testing.T) {
	if !slices.Contains(s.caps.GetSupportedBatchUpdateCompressors(), rexec.Compressor_ZSTD) {
		t.Skip("the server says that it takes no zstd in batches")
	}
	b, d := text(t, 50_000)
	wants(t, s.put(t, d, pack(t, b), rexec.Compressor_ZSTD), codes.OK)
	if got, _, err := s.get(t, d); err != nil || !bytes.Equal(got, b) {
		t.Errorf("uncompressed: %v", err)
	}
	got, c, err := s.get(t, d, rexec.Compressor_ZSTD)
	if err != nil {
		t.Fatal(err)
	}
	if c == rexec.Compressor_ZSTD {
		if got, err = blob.Unpack(got, d.Size); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, b) {
		t.Error("the blob came back as another")
	}
	_, other := text(t, 50_000)
	wants(t, s.put(t, other, pack(t, b), rexec.Compressor_ZSTD), codes.InvalidArgument)
	wants(t, s.put(t, other, []byte("no zstd"), rexec.Compressor_ZSTD), codes.InvalidArgument)
}

func (s *suite) empty(t *testing.T) {
	if got := s.missing(t, blob.Empty); len(got) != 0 {
		t.Error("the empty blob is missing")
	}
	if b, err := s.read(t, s.name(blob.Empty, false, false), 0, 0); err != nil || len(b) != 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func (s *suite) streams(t *testing.T) {
	for _, n := range []int{1, 1000, 5 << 20} {
		b, d := random(t, n)
		_, err := s.read(t, s.name(d, false, false), 0, 0)
		wants(t, err, codes.NotFound)
		got, err := s.write(t, s.name(d, true, false)+"/some/metadata", b, 1<<20, true)
		if err != nil || got != d.Size {
			t.Fatalf("%d bytes: committed %d, %v", n, got, err)
		}
		if back, err := s.read(t, s.name(d, false, false), 0, 0); err != nil || !bytes.Equal(back, b) {
			t.Errorf("%d bytes came back as %d: %v", n, len(back), err)
		}
		answer, err := s.stream.QueryWriteStatus(limit(t), &bytestream.QueryWriteStatusRequest{ResourceName: s.name(d, true, false)})
		if err != nil || !answer.GetComplete() || answer.GetCommittedSize() != d.Size {
			t.Errorf("status %v, %v", answer, err)
		}
	}
}

func (s *suite) offsets(t *testing.T) {
	b, d := random(t, 100_000)
	if _, err := s.write(t, s.name(d, true, false), b, 30_000, true); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ offset, most, want int64 }{{10, 0, 99_990}, {0, 7, 7}, {99_000, 5000, 1000}, {100_000, 0, 0}} {
		got, err := s.read(t, s.name(d, false, false), c.offset, c.most)
		if err != nil || !bytes.Equal(got, b[c.offset:c.offset+c.want]) {
			t.Errorf("from %d at most %d: %d bytes, %v", c.offset, c.most, len(got), err)
		}
	}
	for _, bad := range []int64{-1, 100_001} {
		_, err := s.read(t, s.name(d, false, false), bad, 0)
		wants(t, err, codes.OutOfRange)
	}
	if _, err := s.read(t, s.name(d, false, false), 0, -1); err == nil {
		t.Error("a limit below zero was taken")
	}
}

func (s *suite) streamWrongDigest(t *testing.T) {
	b, d := random(t, 300_000)
	_, other := random(t, 300_000)
	for name, data := range map[string][]byte{"other": b, "short": b[:1000], "long": append(slices.Clone(b), 1)} {
		target := other
		if name != "other" {
			target = d
		}
		if _, err := s.write(t, s.name(target, true, false), data, 100_000, true); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if got := s.missing(t, target); len(got) != 1 {
			t.Errorf("%s: the wrong blob is there", name)
		}
	}
}

func (s *suite) streamBroken(t *testing.T) {
	b, d := random(t, 300_000)
	if _, err := s.write(t, s.name(d, true, false), b[:100_000], 50_000, false); err == nil {
		t.Error("an upload without an end was taken")
	}
	ctx, cancel := context.WithCancel(limit(t))
	stream, err := s.stream.Write(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bytestream.WriteRequest{ResourceName: s.name(d, true, false), Data: b[:1000]}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Error("a canceled upload was taken")
	}
	if got := s.missing(t, d); len(got) != 1 {
		t.Error("half a blob is there")
	}
	if _, err := s.write(t, s.name(d, true, false), b, 100_000, true); err != nil {
		t.Errorf("the upload cannot be tried again: %v", err)
	}
}

func (s *suite) streamTwice(t *testing.T) {
	b, d := text(t, 3<<20)
	for range 2 {
		if got, err := s.write(t, s.name(d, true, false), b, 1<<20, true); err != nil || got != d.Size {
			t.Fatalf("committed %d, %v", got, err)
		}
	}
	if !slices.Contains(s.caps.GetSupportedCompressors(), rexec.Compressor_ZSTD) {
		return
	}
	packed := pack(t, b)
	if got, err := s.write(t, s.name(d, true, true), packed, 1<<20, true); err != nil || got != -1 && got != int64(len(packed)) {
		t.Errorf("compressed: committed %d, %v", got, err)
	}
}

func (s *suite) streamZstd(t *testing.T) {
	if !slices.Contains(s.caps.GetSupportedCompressors(), rexec.Compressor_ZSTD) {
		t.Skip("the server says that it knows no zstd")
	}
	b, d := text(t, 4<<20)
	packed := pack(t, b)
	if got, err := s.write(t, s.name(d, true, true), packed, 10_000, true); err != nil || got != -1 && got != int64(len(packed)) {
		t.Fatalf("committed %d, %v", got, err)
	}
	if got, err := s.read(t, s.name(d, false, false), 0, 0); err != nil || !bytes.Equal(got, b) {
		t.Errorf("uncompressed: %v", err)
	}
	for _, offset := range []int64{0, 1_000_000} { // of the uncompressed bytes
		got, err := s.read(t, s.name(d, false, true), offset, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err = blob.Unpack(got, d.Size); err != nil || !bytes.Equal(got, b[offset:]) {
			t.Errorf("from %d: %v", offset, err)
		}
	}
	_, err := s.read(t, s.name(d, false, true), 0, 10)
	wants(t, err, codes.InvalidArgument)
	_, other := text(t, 4<<20)
	for name, data := range map[string][]byte{"other": packed, "no zstd": []byte("no zstd"), "cut": packed[:len(packed)/2]} {
		if _, err := s.write(t, s.name(other, true, true), data, 10_000, true); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if got := s.missing(t, other); len(got) != 1 {
		t.Error("the wrong blob is there")
	}
}

func (s *suite) badNames(t *testing.T) {
	_, d := random(t, 10)
	for _, name := range []string{"", "blobs", "blobs/" + string(d.Hash), "blobs/xyz/10", "blobs/" + string(d.Hash) + "/-1", "blobs/" + string(d.Hash) + "/ten", "bulbs/" + d.String(), "uploads/x/blobs/" + d.String()} {
		if _, err := s.read(t, name, 0, 0); err == nil || status.Code(err) == codes.Internal || status.Code(err) == codes.Unknown {
			t.Errorf("reading %q: %v", name, err)
		}
	}
	for _, name := range []string{"", "blobs/" + d.String(), "uploads/blobs/" + d.String(), "uploads/u/blobs/abc/3"} {
		if _, err := s.write(t, name, []byte("0123456789"), 10, true); err == nil || status.Code(err) == codes.Internal || status.Code(err) == codes.Unknown {
			t.Errorf("writing %q: %v", name, err)
		}
	}
}

func (s *suite) results(t *testing.T) {
	out, dout := random(t, 500)
	command, err := proto.Marshal(&rexec.Command{Arguments: []string{"true", string(dout.Hash)}})
	if err != nil {
		t.Fatal(err)
	}
	action, err := proto.Marshal(&rexec.Action{CommandDigest: blob.Of(command).Proto(), InputRootDigest: blob.Empty.Proto()})
	if err != nil {
		t.Fatal(err)
	}
	key := blob.Of(action)
	get := func() (*rexec.ActionResult, error) {
		return s.actions.GetActionResult(limit(t), &rexec.GetActionResultRequest{InstanceName: s.instance, ActionDigest: key.Proto()})
	}
	_, err = get()
	wants(t, err, codes.NotFound)
	if !s.caps.GetActionCacheUpdateCapabilities().GetUpdateEnabled() {
		t.Skip("the server says that it takes no results")
	}
	for _, b := range [][]byte{out, command, action} {
		wants(t, s.put(t, blob.Of(b), b, rexec.Compressor_IDENTITY), codes.OK)
	}
	want := &rexec.ActionResult{
		ExitCode:    0,
		OutputFiles: []*rexec.OutputFile{{Path: "dist/ü", Digest: dout.Proto(), IsExecutable: true}},
		StdoutRaw:   []byte("said\n"),
	}
	if _, err := s.actions.UpdateActionResult(limit(t), &rexec.UpdateActionResultRequest{InstanceName: s.instance, ActionDigest: key.Proto(), ActionResult: want}); err != nil {
		t.Fatal(err)
	}
	got, err := get()
	if err != nil {
		t.Fatal(err)
	}
	if f := got.GetOutputFiles(); len(f) != 1 || f[0].GetPath() != "dist/ü" || !f[0].GetIsExecutable() || f[0].GetDigest().GetHash() != string(dout.Hash) {
		t.Errorf("output files %v", f)
	}
}

func (s *suite) tree(t *testing.T) {
	seed, _ := random(t, 8)
	leaf, err := proto.Marshal(&rexec.Directory{Symlinks: []*rexec.SymlinkNode{{Name: "l", Target: string(blob.Of(seed).Hash)}}})
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, d blob.Digest) *rexec.DirectoryNode {
		return &rexec.DirectoryNode{Name: name, Digest: d.Proto()}
	}
	_, gone := random(t, 30)
	root, err := proto.Marshal(&rexec.Directory{Directories: []*rexec.DirectoryNode{
		node("a", blob.Of(leaf)), node("b", blob.Of(leaf)), node("c", gone),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{leaf, root} {
		wants(t, s.put(t, blob.Of(b), b, rexec.Compressor_IDENTITY), codes.OK)
	}
	stream, err := s.cas.GetTree(limit(t), &rexec.GetTreeRequest{InstanceName: s.instance, RootDigest: blob.Of(root).Proto(), PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if status.Code(err) == codes.Unimplemented {
			t.Skip("the server has no GetTree")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range m.GetDirectories() {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, string(blob.Of(b).Hash))
		}
	}
	if !slices.Contains(found, string(blob.Of(root).Hash)) || !slices.Contains(found, string(blob.Of(leaf).Hash)) {
		t.Errorf("the tree came as %v", found)
	}
}
