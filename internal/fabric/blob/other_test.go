package blob_test

import (
	"bytes"
	"os"
	"sync"
	"testing"

	rexec "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/fabric/blob"
)

// otherVar names a server that is not ours, as grpc://HOST:PORT: bazel-remote,
// for one.
const otherVar = "BROOD_TEST_REAPI"

func TestAnotherServer(t *testing.T) {
	address := os.Getenv(otherVar)
	if address == "" {
		t.Skipf("SKIPPED: no other server of the Remote Execution API is named by %s", otherVar)
	}
	c, err := blob.Dial(blob.ClientConfig{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	limits, err := c.Limits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("limits: %+v", limits)
	all := many(9)
	nonce := []byte(id.Random(16)) // so that a server in use has them not
	for d, b := range all {
		delete(all, d)
		all.add(append(b, nonce...))
	}
	if err := c.Upload(t.Context(), all.digests(), all.source); err != nil {
		t.Fatal(err)
	}
	got := contents{}
	var mu sync.Mutex
	if err := c.Download(t.Context(), all.digests(), got.sink(&mu)); err != nil {
		t.Fatal(err)
	}
	for d, b := range all {
		if !bytes.Equal(got[d], b) {
			t.Errorf("%s came back as other bytes", d)
		}
	}
	action, err := proto.Marshal(&rexec.Action{CommandDigest: blob.Of(nonce).Proto(), InputRootDigest: blob.Empty.Proto()})
	if err != nil {
		t.Fatal(err)
	}
	key := blob.Of(action)
	if _, err := c.Result(t.Context(), key); !errs.Is(err, errs.NotFound) {
		t.Errorf("a miss is %v", err)
	}
	result := &rexec.ActionResult{StdoutRaw: []byte("said")}
	for _, d := range all.digests()[:3] {
		result.OutputFiles = append(result.OutputFiles, &rexec.OutputFile{Path: d.String(), Digest: d.Proto()})
	}
	if err := c.SetResult(t.Context(), key, result); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Result(t.Context(), key); err != nil || len(r.GetOutputFiles()) != 3 {
		t.Errorf("%v, %v", r, err)
	}
}
