package wire_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	broodv1 "brood/api/brood/v1"
	daemonv1 "brood/api/cua/daemon/v1"
	"brood/internal/wire"
)

var update = flag.Bool("update", false, "write the goldens anew")

func at() *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC))
}

// shown are messages whose JSON people's scripts read.
var shown = []struct {
	name string
	m    proto.Message
}{
	{"placement", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: &daemonv1.ForkBatchPlacement{
		Source: "base", Host: "local", Count: 32, Attempt: 1, Reason: "this machine was asked for",
	}}}},
	{"placement zero", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Placement{Placement: &daemonv1.ForkBatchPlacement{}}}},
	{"sync", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Sync{Sync: &daemonv1.SnapshotSyncProgress{
		Name: "base", Digest: "ab12", From: "m2", BytesDone: math.MaxUint64, BytesTotal: 1 << 53, BytesReused: 3, Done: true, Verified: true, To: "local",
	}}}},
	{"item ready", &daemonv1.ForkSandboxBatchResponse{
		Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: &daemonv1.ForkBatchItem{
			Index: 7, Source: "base", Name: "base-x1y2z3-7", Host: "local", Space: "local:base-x1y2z3-7", Attempt: 1, ElapsedMs: 61, ForkMs: 48,
		}},
		Sandbox: &daemonv1.Sandbox{
			Name: "base-x1y2z3-7", Provider: daemonv1.SandboxProvider_SANDBOX_PROVIDER_LOCAL, State: daemonv1.SandboxState_SANDBOX_STATE_RUNNING,
			Image: "host", Labels: map[string]string{"b": "2", "a": "<1>"}, CreatedAt: at(), Location: "local", Id: "local:base-x1y2z3-7",
			Kind: "container", Runtime: "gvisor",
		},
	}},
	{"item failed", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Item{Item: &daemonv1.ForkBatchItem{
		Index: 1, Source: "base", Name: "base-x1y2z3-1", Host: "local", Error: "no answer from inside within 10s", ErrorCode: "fork_failed", Attempt: 1, ElapsedMs: 10_050, ForkMs: 10_001,
	}}}},
	{"done", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: &daemonv1.ForkBatchSummary{
		Ok: 31, Failed: 1, ElapsedMs: 10_060, PerHost: map[string]uint32{"local": 31}, PeakParallel: map[string]uint32{"local": 4},
	}}}},
	{"done zero", &daemonv1.ForkSandboxBatchResponse{Event: &daemonv1.ForkSandboxBatchResponse_Done{Done: &daemonv1.ForkBatchSummary{}}}},
	{"no event", &daemonv1.ForkSandboxBatchResponse{}},
	{"bytes", &broodv1.ExecOutput{Offset: 1 << 60, Data: []byte{0, 255, '<'}}},
	{"optional set to zero", &daemonv1.CreateSandboxProgress{Phase: "creating", Fraction: proto.Float64(0), BytesPerSecond: proto.Float64(math.Inf(1))}},
	{"durations and unknown enums", &broodv1.SandboxInfo{IdleTimeout: durationpb.New(90 * time.Second), Sandbox: &daemonv1.Sandbox{State: 77}, ExitCode: proto.Int32(-1)}},
	{"lists", &daemonv1.ListSandboxesResponse{Warnings: []string{"a\n\"b\"", "ü\u2028"}}},
}

func TestJSONGolden(t *testing.T) {
	var got bytes.Buffer
	for _, s := range shown {
		b, err := wire.JSON(s.m)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if !json.Valid(b) || bytes.ContainsRune(b, '\n') {
			t.Errorf("%s: not one line of JSON: %s", s.name, b)
		}
		got.WriteString("# " + s.name + "\n")
		got.Write(b)
		got.WriteByte('\n')
	}
	const path = "testdata/json.golden"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the JSON form changed; scripts depend on it (F7). If it must: go test ./internal/wire -update\ngot\n%s\nwant\n%s", got.Bytes(), want)
	}
}

// Numbers stay exact for a reader that can hold them.
func TestJSONNumbersAreExact(t *testing.T) {
	b, err := wire.JSON(&daemonv1.SnapshotSyncProgress{BytesDone: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		BytesDone uint64 `json:"bytes_done"`
	}
	if err := json.Unmarshal(b, &back); err != nil || back.BytesDone != math.MaxUint64 {
		t.Errorf("%s -> %d, %v", b, back.BytesDone, err)
	}
}
