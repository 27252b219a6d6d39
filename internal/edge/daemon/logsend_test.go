package daemon

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	broodv1 "brood/api/brood/v1"
	"brood/internal/base/errs"
	"brood/internal/sandbox/guest/logs"
)

// A reader that is cut off behind any piece, and goes on there, has each
// stream whole and nothing twice, whatever was between.
func TestLogGoesOnBehindAnyPiece(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		paths, written := someLog(t, random, 1+random.IntN(30))
		req := &broodv1.GetLogsRequest{Timestamps: round%2 == 0}
		if random.IntN(3) == 0 {
			req.Stream = broodv1.LogStream(1 + random.IntN(2))
		}
		if random.IntN(3) == 0 {
			lines := uint32(random.IntN(10))
			req.Tail = &lines
		}
		whole := sent(t, paths, req)
		for i, at := range whole {
			again := &broodv1.GetLogsRequest{Timestamps: req.GetTimestamps(), Stream: req.GetStream(), Tail: req.Tail, After: at.GetNext()}
			rest := sent(t, paths, again)
			for _, stream := range []broodv1.LogStream{broodv1.LogStream_LOG_STREAM_STDOUT, broodv1.LogStream_LOG_STREAM_STDERR} {
				want, got := textOf(whole, stream), textOf(append(whole[:i+1:i+1], rest...), stream)
				if got != want {
					t.Fatalf("round %d, behind piece %d (%s), %v: %q, want %q; written was %q", round, i, at.GetNext(), stream, got, want, written)
				}
			}
		}
	}
}

// someLog writes a log of both streams in pieces that keep to no lines.
func someLog(t *testing.T, random *rand.Rand, pieces int) (paths [2]string, written []string) {
	t.Helper()
	dir := t.TempDir()
	var files [2]logs.File
	for i := range files {
		paths[i] = filepath.Join(dir, string(rune('0'+i)))
		f, err := os.OpenFile(paths[i], os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	w := logs.NewWriter(files)
	w.SetLimit(logs.MinLimit)
	for i := range pieces {
		text := strings.Repeat("abc\nde\n\nfghij"[:random.IntN(14)], 1+random.IntN(3))
		if random.IntN(20) == 0 {
			text += strings.Repeat("x", random.IntN(60000)) // so that segments change
		}
		e := logs.Entry{Stream: logs.Stream(1 + random.IntN(2)), Time: time.Unix(int64(i), 0), Data: []byte(text)}
		if len(text) > 0 {
			w.Write(e)
			written = append(written, text[:min(len(text), 40)])
		}
	}
	return paths, written
}

// sent is what a caller gets.
func sent(t *testing.T, paths [2]string, req *broodv1.GetLogsRequest) []*broodv1.GetLogsResponse {
	t.Helper()
	r, err := logs.Open(paths)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []*broodv1.GetLogsResponse
	out := &logSender{req: req, sandbox: "sb-1", send: func(m *broodv1.GetLogsResponse) error {
		all = append(all, m)
		return nil
	}}
	if err := out.begin(r); err != nil {
		t.Fatal(err)
	}
	if err := drain(r, out); err != nil {
		t.Fatal(err)
	}
	if err := out.flush(); err != nil {
		t.Fatal(err)
	}
	return all
}

func textOf(all []*broodv1.GetLogsResponse, stream broodv1.LogStream) string {
	var b strings.Builder
	for _, m := range all {
		if m.GetStream() == stream {
			b.Write(m.GetData())
		}
	}
	return b.String()
}

func TestRefusesMarksThatAreNone(t *testing.T) {
	for after, code := range map[string]errs.Code{
		"x": errs.InvalidArgument, "1.2.3/4.5/sb-1": errs.InvalidArgument, "1.-2.3/4.5.6/sb-1": errs.InvalidArgument, "1.2.3/4.5.6/sb-2": errs.FailedPrecondition,
	} {
		o := &logSender{req: &broodv1.GetLogsRequest{After: after}, sandbox: "sb-1"}
		if err := o.begin(nil); !errs.Is(err, code) {
			t.Errorf("%s: %v", after, err)
		}
	}
}
