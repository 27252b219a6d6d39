package stamp

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestStamps(t *testing.T) {
	root := t.TempDir()
	name := filepath.Join(root, "x")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := Of(name)
	if err != nil || !st.Regular() || st.Dir() || st.Link() || st.Perm() != 0o600 || st.Size != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	file := filepath.Join(t.TempDir(), "deep", "stamps")
	table := Load(file)
	table.Put(Digest, "x", st, "fresh", time.Unix(0, st.MTime))
	if _, ok := table.Get(Digest, "x", st); ok {
		t.Error("a file that was just written is remembered")
	}
	table.Put(Digest, "x", st, "id", time.Unix(0, st.MTime).Add(time.Hour))
	table.Own("x", "a#types")
	table.Own("gone", "a#types")
	if err := table.Save(root); err != nil {
		t.Fatal(err)
	}
	table = Load(file)
	if id, ok := table.Get(Digest, "x", st); !ok || id != "id" || table.Owner("x") != "a#types" || len(table.OwnedBy("a#types")) != 2 {
		t.Errorf("%q %v, owner %q", id, ok, table.Owner("x"))
	}
	if _, ok := table.Get(Blob, "x", st); ok {
		t.Error("another kind of id is known")
	}
	for _, other := range []Stat{{}, {Size: st.Size, MTime: st.MTime + 1, CTime: st.CTime, Ino: st.Ino, Mode: st.Mode}} {
		if _, ok := table.Get(Digest, "x", other); ok {
			t.Errorf("%+v is believed", other)
		}
	}
	table.Forget("x")
	if _, ok := table.Get(Digest, "x", st); ok || table.Owner("x") != "" {
		t.Error("forgotten and known")
	}
	var none *Table
	if _, ok := none.Get(Digest, "x", st); ok {
		t.Error("no table knows something")
	}
	none.Put(Digest, "x", st, "id", time.Now())
}

func TestUnusedStampsOfFilesThatAreGoneAreDropped(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(t.TempDir(), "stamps")
	table := Load(file)
	for _, n := range []string{"a", "b", "c"} {
		table.Force(Digest, n, Stat{}, "id")
	}
	if err := table.Save(root); err != nil {
		t.Fatal(err)
	}
	table = Load(file)
	table.Force(Digest, "d", Stat{}, "id")
	if err := table.Save(root); err != nil {
		t.Fatal(err)
	}
	if table = Load(file); len(table.m) != 1 {
		t.Errorf("%d stamps", len(table.m))
	}
}

func FuzzTable(f *testing.F) {
	f.Add(encode(map[name]value{{Digest, "a\xff"}: {stat: Stat{Size: -1, MTime: 5, Ino: 1 << 63, Mode: 7}, id: "x", owner: "y"}}))
	f.Add([]byte{1, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := decode(b)
		if !ok {
			body := append([]byte(magic), b...)
			sum := sha256.Sum256(body)
			m, ok = decode(append(body, sum[:8]...))
		}
		if !ok {
			return
		}
		again, ok := decode(encode(m))
		if !ok || len(again) != len(m) {
			t.Fatal("what is written is not read")
		}
		if len(m) == 1 && !bytes.Equal(encode(m), encode(again)) {
			t.Error("it is not the same again")
		}
	})
}

// On a file system that keeps whole seconds a file may change twice in one.
func TestWholeSecondsSettleLate(t *testing.T) {
	at := time.Unix(1e9, 0)
	whole, fine := Stat{MTime: at.UnixNano(), CTime: at.UnixNano()}, Stat{MTime: at.UnixNano(), CTime: at.UnixNano() + 1}
	for after, want := range map[time.Duration][2]bool{10 * time.Millisecond: {false, false}, time.Second: {false, true}, 3 * time.Second: {true, true}} {
		if got := [2]bool{whole.Settled(at.Add(after)), fine.Settled(at.Add(after))}; got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
}
