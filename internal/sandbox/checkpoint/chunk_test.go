package checkpoint

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"brood/internal/base/digest"
)

// memory returns pages as a runtime would write them: random, with runs of
// equal pages and of zeros.
func memory(seed byte, pages int) []byte {
	b := make([]byte, pages*page)
	r := rand.New(rand.NewChaCha8([32]byte{seed}))
	for i := range pages {
		p := b[i*page : (i+1)*page]
		switch r.IntN(10) {
		case 0: // zeros
		case 1:
			for j := range p {
				p[j] = seed
			}
		default:
			for j := 0; j < page; j += 8 {
				v := r.Uint64()
				for k := range 8 {
					p[j+k] = byte(v >> (8 * k))
				}
			}
		}
	}
	return b
}

func cutBytes(t testing.TB, b []byte, cut Cut) []Chunk {
	t.Helper()
	chunks, err := chunksOf(bytes.NewReader(b), cut)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for i, c := range chunks {
		if c.Size < 1 || c.Size > maxChunk || i < len(chunks)-1 && c.Size%page != 0 {
			t.Fatalf("chunk %d has %d bytes", i, c.Size)
		}
		if digest.Of(b[at:at+c.Size]) != c.SHA256 {
			t.Fatalf("chunk %d is not the bytes at %d", i, at)
		}
		at += c.Size
	}
	if at != int64(len(b)) {
		t.Fatalf("chunks cover %d of %d bytes", at, len(b))
	}
	return chunks
}

// fresh returns the bytes of b's chunks that a does not have.
func fresh(a, b []Chunk) (n int64) {
	have := map[digest.Digest]bool{}
	for _, c := range a {
		have[c.SHA256] = true
	}
	for _, c := range b {
		if !have[c.SHA256] {
			n += c.Size
		}
	}
	return n
}

func TestOnePageMoreChangesFewChunks(t *testing.T) {
	before := memory(1, 4000)
	old := cutBytes(t, before, ByContent)
	mean := len(before) / len(old)
	if mean < 32<<10 || mean > 128<<10 {
		t.Errorf("chunks have %d bytes on average", mean)
	}
	for _, at := range []int{0, 1, 1999, 4000} {
		after := slices.Concat(before[:at*page], memory(2, 3)[2*page:], before[at*page:])
		if n := fresh(old, cutBytes(t, after, ByContent)); n > 2*maxChunk {
			t.Errorf("a page more at %d: %d bytes of new chunks", at, n)
		}
		if n := fresh(cutBytes(t, before, ByOffset), cutBytes(t, after, ByOffset)); at < 2000 && n < int64(len(before))/3 {
			t.Errorf("cutting by offset should not survive a shift; that it does (%d) means the test shows nothing", n)
		}
	}
}

func TestOnePageChangedInPlace(t *testing.T) {
	before := memory(3, 1000)
	after := slices.Clone(before)
	after[500*page] ^= 1
	for _, cut := range []Cut{ByContent, ByOffset} {
		if n := fresh(cutBytes(t, before, cut), cutBytes(t, after, cut)); n == 0 || n > 2*maxChunk {
			t.Errorf("%s: %d bytes of new chunks", cut, n)
		}
	}
}

func TestZerosAreCutAtTheMost(t *testing.T) {
	chunks := cutBytes(t, make([]byte, 10*maxChunk+5), ByContent)
	if len(chunks) != 11 || chunks[0].Size != maxChunk || chunks[10].Size != 5 {
		t.Errorf("%d chunks, the first of %d bytes", len(chunks), chunks[0].Size)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add(memory(1, 40), true)
	f.Add(memory(2, 300)[7:], false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, byContent bool) {
		cut := ByOffset
		if byContent {
			cut = ByContent
		}
		cutBytes(t, b, cut)
	})
}

func BenchmarkChunks(b *testing.B) {
	mem := memory(1, 16<<10)
	b.SetBytes(int64(len(mem)))
	for b.Loop() {
		if _, err := chunksOf(bytes.NewReader(mem), ByContent); err != nil {
			b.Fatal(err)
		}
	}
}
