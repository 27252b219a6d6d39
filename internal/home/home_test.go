package home_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/home"
)

type thing struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

var v1 = home.Schema{Kind: "thing", Format: 1}
var v3 = home.Schema{Kind: "thing", Format: 3, Migrate: map[int]func(map[string]any) error{
	1: func(m map[string]any) error { m["name"] = m["name"].(string) + "!"; return nil },
	2: func(m map[string]any) error { m["count"] = 7; return nil },
}}

func TestRecordRoundTripAndMigration(t *testing.T) {
	for _, d := range []home.Durability{home.Volatile, home.Durable} {
		path := filepath.Join(t.TempDir(), "thing.json")
		if err := v1.Write(path, thing{Name: "a", Count: 1}, d); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("mode %v %v", st.Mode(), err)
		}
		var got thing
		if err := v1.Read(path, &got); err != nil || got != (thing{"a", 1}) {
			t.Fatalf("%+v %v", got, err)
		}
		if err := v3.Read(path, &got); err != nil || got != (thing{"a!", 7}) {
			t.Fatalf("migrated %+v %v", got, err)
		}
		if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
			t.Errorf("debris: %v", entries)
		}
	}
}

func TestRecordRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thing.json")
	var got thing
	if err := v1.Read(path, &got); errs.CodeOf(err) != errs.NotFound {
		t.Errorf("missing: %v", err)
	}
	for text, want := range map[string]errs.Code{
		``: errs.DataLoss, `[]`: errs.DataLoss, `{"format":0}`: errs.DataLoss, `{"name":"a"}`: errs.DataLoss,
		`{"format":1,"name":4}`: errs.DataLoss, `{"format":2}`: errs.Unsupported, "\x00\x00": errs.DataLoss,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := v1.Read(path, &got); errs.CodeOf(err) != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	if err := v1.Write(filepath.Join(t.TempDir(), "no", "x.json"), thing{}, home.Volatile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write into a missing folder: %v", err)
	}
}

func FuzzRecordDecode(f *testing.F) {
	for _, s := range []string{`{"format":1,"name":"a"}`, `{"format":3}`, `{"format":99}`, `{`, ``, `{"format":1e9}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got thing
		err := home.Schema{Kind: "thing", Format: 2, Migrate: map[int]func(map[string]any) error{1: func(map[string]any) error { return nil }}}.Decode("x", b, &got)
		if err != nil && errs.CodeOf(err) == errs.Internal {
			t.Fatal(err)
		}
	})
}

func TestOpenSecuresTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "h")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := home.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if st, _ := os.Stat(dir); st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", st.Mode())
	}
	if _, err := os.Stat(h.Checkpoints()); err != nil {
		t.Error(err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	h, err := home.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, err := h.TryLock("daemon")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.TryLock("daemon"); errs.CodeOf(err) != errs.AlreadyExists {
		t.Errorf("second lock: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	l, err = h.TryLock("daemon")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Unlock()
}

func TestSocketAtALongPath(t *testing.T) {
	for _, depth := range []int{0, 5} {
		dir := filepath.Join(t.TempDir(), strings.Repeat(strings.Repeat("d", 30)+"/", depth))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "brood.sock")
		for range 2 { // the second finds the stale socket of the first
			l, err := home.ListenSocket(path)
			if err != nil {
				t.Fatal(err)
			}
			if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", st.Mode())
			}
			c, err := home.DialSocket(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []interface{ Close() error }{c, s, l} {
				if err := x.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
	}
}

func TestRemoveDebris(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{".tmp-1", "keep"} {
		if err := os.MkdirAll(filepath.Join(dir, n, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := home.RemoveDebris(dir, func(n string) bool { return strings.HasPrefix(n, ".tmp-") }); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 || entries[0].Name() != "keep" {
		t.Errorf("%v", entries)
	}
}
