package history

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"brood/internal/base/id"
)

// FuzzJournal reads journals, whole and not: what is in them is read or left
// out, and what is read can be written.
func FuzzJournal(f *testing.F) {
	h := head{print: bytes.Repeat([]byte{7}, 16), figures: map[id.Task]Figures{"a#build": {Runs: 3, Failures: 1, Wall: time.Second, PeakMemory: 1 << 40, Flaky: true}}}
	run, err := encodeRun(&Run{ID: "r", Workspace: "/w", tasks: []byte("[]")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendFrame(appendFrame(nil, h.encode()), run))
	f.Add(appendFrame(nil, head{}.encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		j := journal{filepath.Join(t.TempDir(), "j")}
		if err := os.WriteFile(j.file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		all, end, err := j.runs()
		if err != nil || end > int64(len(b)) {
			t.Fatalf("%d runs, the head ends at %d of %d, %v", len(all), end, len(b), err)
		}
		known, ok := j.head()
		if ok != (end > 0) {
			t.Errorf("a head: %v, and it ends at %d", ok, end)
		}
		if again, whole := decodeHead(known.encode()); ok && (!whole || !reflect.DeepEqual(again, known)) {
			t.Errorf("%+v is read again as %+v", known, again)
		}
		full, err := j.add(known.print, run)
		if err != nil {
			t.Fatal(err)
		}
		after, _, err := j.runs()
		if err != nil || !full && len(after) != len(all)+1 || full && len(after) != len(all) {
			t.Errorf("%d runs, then %d; full %v, %v", len(all), len(after), full, err)
		}
	})
}

// FuzzHead reads heads whose sum is right.
func FuzzHead(f *testing.F) {
	f.Add(head{print: []byte("print"), figures: map[id.Task]Figures{"a": {Runs: 1}, "": {}}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeHead(b)
		if again, whole := decodeHead(h.encode()); ok && (!whole || !reflect.DeepEqual(again, h)) {
			t.Errorf("%+v is read again as %+v", h, again)
		}
	})
}
