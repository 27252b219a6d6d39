package daemonv1_test

import (
	"encoding/hex"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	daemonv1 "brood/api/cua/daemon/v1"
)

var update = flag.Bool("update", false, "write the goldens anew")

// full has every field of every message of the fork batch set, zero values
// aside, to something that shows its number and type in the bytes.
var full = map[string]proto.Message{
	"group":     group(),
	"fallback":  fallback(),
	"placement": placement(),
	"sync":      progress(),
	"item":      item(),
	"summary":   summary(),
	"request_groups": &daemonv1.ForkSandboxBatchRequest{
		Groups: []*daemonv1.ForkBatchGroup{group(), {Source: "other", Count: 1}}, On: "auto", Fallback: &daemonv1.SnapshotFallback{Dir: "~/shared"},
	},
	"request_source": &daemonv1.ForkSandboxBatchRequest{
		Source: "base", Count: 300, GroupSize: 16, On: "host:m2", MaxParallelPerHost: 8, Cpus: 2, MemoryMb: 1 << 40, NamePrefix: "w",
		Fallback: fallback(), Retries: 3, NoRetry: true,
	},
	"event_placement": &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: placement()}},
	"event_sync":      &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Sync{Sync: progress()}},
	"event_item": &daemonv1.ForkSandboxBatchResponse{
		Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: item()}, Sandbox: sandbox(),
	},
	"event_item_failed": &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: &daemonv1.ForkBatchItem{
		Index: 1, Error: "killed", ErrorCode: "fork_failed", Attempt: 2,
	}}},
	"event_done": &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: summary()}},
}

func group() *daemonv1.ForkBatchGroup {
	return &daemonv1.ForkBatchGroup{Source: "base", Count: 300, NamePrefix: "w"}
}

func fallback() *daemonv1.SnapshotFallback {
	return &daemonv1.SnapshotFallback{S3Bucket: "b", S3Prefix: "p/", S3Region: "eu", S3Endpoint: "http://s3", Dir: "/d"}
}

func placement() *daemonv1.ForkBatchPlacement {
	return &daemonv1.ForkBatchPlacement{Group: 1, Source: "base", Host: "local", Count: 300, Attempt: 2, NeedsSync: true, Reason: "least loaded"}
}

func progress() *daemonv1.SnapshotSyncProgress {
	return &daemonv1.SnapshotSyncProgress{
		Name: "base", Digest: "ab", From: "s3", BytesDone: 1, BytesTotal: math.MaxUint64, BytesReused: 300, Done: true, Verified: true, To: "m2",
	}
}

func item() *daemonv1.ForkBatchItem {
	return &daemonv1.ForkBatchItem{
		Index: 299, Group: 1, Source: "base", Name: "w-299", Host: "local", Space: "local:w-299", Error: "e", ErrorCode: "c", Attempt: 1, ElapsedMs: 61, ForkMs: 1 << 33,
	}
}

func summary() *daemonv1.ForkBatchSummary {
	return &daemonv1.ForkBatchSummary{
		Ok: 31, Failed: 1, ElapsedMs: 1 << 33, PerHost: map[string]uint32{"local": 20, "m2": 11}, PeakParallel: map[string]uint32{"local": 4},
	}
}

func sandbox() *daemonv1.Sandbox {
	return &daemonv1.Sandbox{
		Name: "w-299", Provider: daemonv1.SandboxProvider_SANDBOX_PROVIDER_LOCAL, State: daemonv1.SandboxState_SANDBOX_STATE_RUNNING, Image: "host",
		Endpoints: map[string]string{"web": "http://127.0.0.1:1"}, Labels: map[string]string{"k": "v"}, CreatedAt: timestamppb.New(time.Unix(1_700_000_000, 5)),
		Error: "e", RuntimeType: "gvisor", Ephemeral: true, Services: map[string]uint32{"web": 80}, Location: "local", ExpiresAt: timestamppb.New(time.Unix(1_800_000_000, 0)),
		ProviderDetails: map[string]string{"pid": "1"}, Id: "local:w-299", Kind: "container", Runtime: "gvisor",
	}
}

// TestWireBytes: the bytes of each message stay what they are, and read back
// to the same message.
func TestWireBytes(t *testing.T) {
	for name, m := range full {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(lines(b)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if string(want) != string(b) {
			t.Errorf("%s: the bytes changed, which breaks every client. Got\n%swant\n%s", name, lines(b), lines(want))
		}
		back := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(want, back); err != nil || !proto.Equal(back, m) {
			t.Errorf("%s reads back as %v, %v", name, back, err)
		}
	}
	if found, _ := filepath.Glob("testdata/*.hex"); len(found) != len(full) {
		t.Errorf("%d goldens for %d messages", len(found), len(full))
	}
}

// TestEveryFieldIsInAGolden keeps the goldens complete.
func TestEveryFieldIsInAGolden(t *testing.T) {
	for _, name := range []string{"group", "fallback", "placement", "sync", "item", "summary", "request_source"} {
		m := full[name].ProtoReflect()
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			if f.Name() != "groups" && !m.Has(f) {
				t.Errorf("%s has no %s", name, f.Name())
			}
		}
	}
	m := sandbox().ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		if f := m.Descriptor().Fields().Get(i); !m.Has(f) {
			t.Errorf("sandbox has no %s", f.Name())
		}
	}
}

func lines(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		n := min(32, len(b))
		s.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return s.String()
}
