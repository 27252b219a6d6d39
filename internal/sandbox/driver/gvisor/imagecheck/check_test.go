package imagecheck

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"brood/internal/base/errs"
)

// stream writes the format for tests.
type stream struct{ bytes.Buffer }

func (s *stream) uint(values ...uint64) *stream {
	for _, v := range values {
		s.Write(binary.AppendUvarint(nil, v))
	}
	return s
}

func (s *stream) str(v string) *stream { s.uint(uint64(len(v))).WriteString(v); return s }

func (s *stream) typ(name string, fields ...string) *stream {
	s.uint(tagType).str(name).uint(uint64(len(fields)))
	for _, f := range fields {
		s.str(f)
	}
	return s
}

// graph begins a graph of n objects.
func (s *stream) graph(n uint64) *stream { return s.uint(objectsFlag | n) }

// everything is an object that holds one of each kind.
func (s *stream) everything() *stream {
	s.uint(tagMany, 16)
	s.uint(tagBool, 1).uint(tagInt, 7).uint(tagUint, 1<<63).uint(tagFloat32, 5).uint(tagFloat64, 6).uint(tagNil)
	s.uint(tagRef, 3, 2).uint(4).uint(2*3 - 1).WriteString("abc") // an index, then a field's name
	s.uint(specMap, specID, 9, specPointer, specArray, 4, specSlice, specNil)
	s.uint(tagString).str("some text")
	s.uint(tagSlice, 1, 2, 3, 0)
	s.uint(tagArray, 3, tagUint, 1, 2, 3)
	s.uint(tagArray, 1<<40, tagNil) // takes no bytes, and no time
	s.uint(tagMap, 2, tagString).str("k").uint(tagBool, 1).str("l").uint(0)
	s.uint(tagMap, 0).uint(tagStruct, 0, tagNone)
	s.uint(tagInterface, specID, 1, tagComplex64, 1, 2).uint(tagComplex128, 3, 4)
	return s
}

// ranges writes a graph with ranges of memory, each start, end and whether
// its pages were saved.
func (s *stream) ranges(list ...[3]uint64) *stream {
	s.graph(2).typ("other", "a", "b").typ(rangeType, "Start", "End", "Value").
		typ(infoType, "kind", "memCgID", "knownCommitted", "wasteOrReleasing", "commitSeq")
	s.uint(tagUint, 1, tagStruct, 1, tagMany, 2, tagNil, tagNil)
	s.uint(tagUint, 2, tagArray, uint64(len(list)))
	for i, r := range list {
		if i == 0 {
			s.uint(tagStruct)
		}
		s.uint(2, tagMany, 3, tagUint, r[0], tagUint, r[1])
		s.uint(tagStruct, 3, tagMany, 5, tagUint, 1, tagUint, 0, tagBool, r[2], tagBool, 0, tagUint, 0)
	}
	return s
}

func meta() []byte {
	s := &stream{}
	s.ranges([3]uint64{0, 4096, 1}, [3]uint64{4096, 1 << 30, 0}, [3]uint64{1 << 30, 1<<30 + 8192, 1})
	s.graph(1).typ("privateMemoryFileMetadata", "owners").uint(tagUint, 1).everything()
	return s.Bytes()
}

const metaPages = 4096 + 8192

func state(compression string) []byte {
	facts := `{"_timestamp":"now","compression":"` + compression + `"}`
	head := append([]byte(magic), binary.BigEndian.AppendUint64(nil, uint64(len(facts)))...)
	head = append(head, facts...)
	h := hmac.New(sha256.New, nil)
	h.Write(head)
	s := &stream{}
	s.graph(1).uint(tagUint, 1).everything()
	s.graph(2).typ("kernel", "x").uint(tagUint, 1, tagStruct, 1, tagUint, 5).uint(tagUint, 2).everything()
	s.uint(5).WriteString("bytes") // a header that counts bytes
	return append(h.Sum(head), s.Bytes()...)
}

func image(t testing.TB, st, meta []byte, pages int64) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{stateName: st, metaName: meta, pagesName: nil} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, pagesName), pages); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWholeImage(t *testing.T) {
	if err := Check(image(t, state("none"), meta(), metaPages)); err != nil {
		t.Error(err)
	}
	packed := state("flate-best-speed")
	if err := Check(image(t, packed[:len(packed)-50], meta(), metaPages)); err != nil {
		t.Errorf("what is packed cannot be looked into: %v", err)
	}
}

func TestEveryCutIsFound(t *testing.T) {
	st, m := state("none"), meta()
	lost := func(what string, n int, dir string) {
		if err := Check(dir); !errs.Is(err, errs.DataLoss) {
			t.Errorf("%s cut to %d: %v", what, n, err)
		}
	}
	// The last object of the sample stands alone, so that only its own header
	// can be missing.
	for n := range len(st) - len("bytes") - 1 {
		lost(stateName, n, image(t, st[:n], m, metaPages))
	}
	for n := range len(m) {
		lost(metaName, n, image(t, st, m[:n], metaPages))
	}
	for _, n := range []int64{0, 1, 4096, metaPages - 1, metaPages + 1} {
		lost(pagesName, int(n), image(t, st, m, n))
	}
	for _, name := range []string{stateName, metaName, pagesName} {
		dir := image(t, st, m, metaPages)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		lost(name+" missing", 0, dir)
	}
}

func TestHeadIsChecked(t *testing.T) {
	for i := range 16 + 20 {
		st := state("none")
		st[i] ^= 1
		if err := Check(image(t, st, meta(), metaPages)); !errs.Is(err, errs.DataLoss) {
			t.Errorf("byte %d of the head changed: %v", i, err)
		}
	}
}

// TestOtherTypesAreNotRefused: a runtime that names its types otherwise says
// nothing about pages.img, and nothing is concluded.
func TestOtherTypesAreNotRefused(t *testing.T) {
	s := &stream{}
	s.graph(1).typ("new/package.segment", "a").uint(tagUint, 1, tagStruct, 1, tagUint, 1)
	s.graph(1).uint(tagUint, 1, tagNil)
	if err := Check(image(t, state("none"), s.Bytes(), 12345)); err != nil {
		t.Error(err)
	}
}

func FuzzMeta(f *testing.F) {
	f.Add(meta())
	f.Add((&stream{}).graph(1 << 40).Bytes())
	f.Add((&stream{}).graph(1).uint(tagUint, 1, tagMap, 1<<62, tagNil, tagNil).Bytes())
	deep := (&stream{}).graph(1).uint(tagUint, 1)
	for range 1000 {
		deep.uint(tagInterface, specNil)
	}
	f.Add(deep.Bytes())
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = checkMeta(bytes.NewReader(b), int64(len(b)))
	})
}

func FuzzState(f *testing.F) {
	f.Add(state("none"))
	f.Add(state("x"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = checkState(bytes.NewReader(b), int64(len(b)))
	})
}
