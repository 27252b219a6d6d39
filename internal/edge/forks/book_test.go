package forks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	daemonv1 "brood/api/cua/daemon/v1"
	"brood/client"
	"brood/internal/edge/cli"
)

func ready(index uint32, host string, forkMs, elapsedMs uint64) *client.Event {
	return &client.Event{Item: &client.ForkBatchItem{Index: index, Name: fmt.Sprintf("f-%d", index), Host: host, Attempt: 1, ForkMs: forkMs, ElapsedMs: elapsedMs}}
}

func broken(index uint32, host string) *client.Event {
	return &client.Event{Item: &client.ForkBatchItem{Index: index, Name: fmt.Sprintf("f-%d", index), Host: host, ErrorCode: "fork_failed", Error: "it\nbroke"}}
}

func placed(host string, count uint32, sync bool) *client.Event {
	return &client.Event{Placement: &client.ForkBatchPlacement{Host: host, Count: count, NeedsSync: sync}}
}

func copied(to string, done uint64, end bool) *client.Event {
	return &client.Event{Sync: &client.SnapshotSyncProgress{Name: "base", Digest: "d", From: "local", To: to, BytesDone: done, BytesTotal: 100e6, Done: end}}
}

// The live view, from a batch over two machines.
func TestLiveLines(t *testing.T) {
	b := newBook("b-1", 40, &job{})
	d := &liveDisplay{book: b}
	for _, e := range []*client.Event{
		placed("local", 20, false), placed("m2", 20, true), copied("m2", 50e6, false),
		ready(0, "local", 40, 45), ready(1, "local", 90, 95), ready(2, "local", 50, 600), broken(3, "local"),
	} {
		b.note(e)
	}
	b.ran(&outcome{})
	got := strings.Join(d.lines(2500*time.Millisecond, 120, 24), "\n")
	want := strings.Join([]string{
		"[==                      ] 3 ready of 40, 1 failed, command ended in 1  2.5 s  batch b-1",
		"  local  3 ready, 1 failed, 16 to come",
		"  m2  0 ready, 20 to come",
		"  [============            ] base from local to m2: 50.0 MB of 100.0 MB",
		"slowest f-1 on local: 90 ms (median 50 ms)",
		"failed f-3: it; broke",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b.note(copied("m2", 100e6, true))
	if got := strings.Join(d.lines(0, 120, 24), "\n"); strings.Contains(got, "from local to m2") {
		t.Errorf("a copy that has ended is still shown:\n%s", got)
	}
}

// However many machines and however small the terminal, the view fits.
func TestLiveLinesFit(t *testing.T) {
	b := newBook("b-1", 1000, nil)
	d := &liveDisplay{book: b, palette: cli.Palette{On: true}}
	for i := range uint32(300) {
		host := fmt.Sprintf("machine-with-a-long-name-%d", i)
		b.note(placed(host, 3, false))
		b.note(ready(i, host, 40, 45))
	}
	for _, size := range [][2]int{{80, 24}, {20, 5}, {3, 2}, {1, 1}} {
		lines := d.lines(time.Second, size[0], size[1])
		if most := max(size[1]-2, 1); len(lines) > most {
			t.Errorf("%d lines on a terminal of %d by %d", len(lines), size[0], size[1])
		}
		for _, l := range lines {
			if n := len([]rune(stripped(l))); n > max(size[0]-1, 1) {
				t.Errorf("a line of %d cells on a terminal of %d: %q", n, size[0], l)
			}
		}
	}
}

// stripped is a line without colours.
func stripped(s string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(s, "\x1b[") {
		if _, rest, ok := strings.Cut(part, "m"); ok && b.Len()+len(part) > 0 && s != part {
			if code, _, _ := strings.Cut(part, "m"); len(code) <= 2 && strings.Trim(code, "0123456789") == "" {
				b.WriteString(rest)
				continue
			}
		}
		b.WriteString(part)
	}
	return b.String()
}

func TestSlowestSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name  string
		event *client.Event
		sync  bool
		want  string
	}{
		{"quick", ready(0, "local", 40, 45), false, "slowest f-0 on local: 40 ms (median 40 ms)"},
		{"queued", ready(0, "local", 40, 500), false, "slowest f-0 on local: 40 ms (median 40 ms), after 460 ms waiting for its turn"},
		{"copied", ready(0, "m2", 40, 2500), true, "slowest f-0 on m2: 40 ms (median 40 ms), after 2.5 s: its checkpoint was copied first"},
	} {
		b := newBook("b", 1, nil)
		b.note(placed(c.event.Item.GetHost(), 1, c.sync))
		b.note(c.event)
		if got := b.slowestText(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	again := ready(0, "local", 40, 1040)
	again.Item.Attempt = 2
	b := newBook("b", 1, nil)
	b.note(again)
	if got := b.slowestText(); !strings.HasSuffix(got, ", after 1.0 s: it was placed 2 times") {
		t.Error(got)
	}
}

func TestClosing(t *testing.T) {
	b := newBook("b-1", 30, nil)
	for i := range uint32(25) {
		b.note(broken(i, "m2"))
	}
	if lines := b.failed(cli.Palette{}); len(lines) != maxFailures+1 || lines[maxFailures] != "and 5 more: brood batch info b-1" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if lines := b.closing(cli.Palette{}); len(lines) != 0 {
		t.Errorf("a sum before the end: %q", lines)
	}
	b.note(&client.Event{Done: &daemonv1.ForkBatchSummary{Ok: 5, Failed: 25, ElapsedMs: 1500, PerHost: map[string]uint32{"m3": 2, "m2": 3}}})
	if got := b.closing(cli.Palette{}); got[len(got)-1] != "5 ready, 25 failed in 1.5 s, batch b-1 (m2 3, m3 2)" {
		t.Errorf("%q", got)
	}
}

// A copy has a line at its beginning, each quarter and its end, not ten a
// second.
func TestCopiesHaveFewLines(t *testing.T) {
	b := newBook("b", 1, nil)
	lines := 0
	for i := range uint64(1001) {
		e := copied("m2", i*1e5, i == 1000)
		b.note(e)
		if b.worthALine(e.Sync) {
			lines++
		}
	}
	if lines != 5 {
		t.Errorf("%d lines, want the beginning, three quarters and the end", lines)
	}
}

func TestPalette(t *testing.T) {
	if got := (cli.Palette{On: true}).Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
	if got := (cli.Palette{}).Good("x"); got != "x" {
		t.Errorf("%q", got)
	}
}
