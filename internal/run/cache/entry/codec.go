package entry

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run"
)

// Most is the largest entry that is read, packed or not: about a million
// outputs.
const Most = 256 << 20

// magic begins every entry; its number is the format's.
const magic = "brood entry 1\n"

// packFrom is from which size on packing an entry pays.
const packFrom = 4 << 10

var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil // the options are right
	}
	return e
})

var unpacker = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(Most))
	if err != nil {
		return nil
	}
	return d
})

// Encode writes e: the magic, "r" or "z" (raw or zstd), the body, and the
// body's SHA-256 cut to 16 bytes.
func (e *Entry) Encode() []byte {
	w := writer{b: make([]byte, 0, 256+len(e.Files)*96)}
	w.sum(e.Key)
	w.string(string(e.Task))
	w.int(int64(e.Took))
	w.int(int64(e.Usage.CPU))
	w.int(e.Usage.PeakMemory)
	w.bool(e.Usage.Sampled)
	w.content(e.Log)
	w.int(int64(len(e.Files)))
	for _, f := range e.Files {
		w.string(f.Path)
		w.int(int64(f.Perm))
		w.content(f.Content)
	}
	w.int(int64(len(e.Links)))
	for _, l := range e.Links {
		w.string(l.Path)
		w.string(l.Target)
	}
	w.int(int64(len(e.Dirs)))
	for _, d := range e.Dirs {
		w.string(d.Path)
		w.int(int64(d.Perm))
	}
	out := make([]byte, 0, len(w.b)+len(magic)+17)
	out = append(out, magic...)
	if len(w.b) >= packFrom {
		out = packer().EncodeAll(w.b, append(out, 'z'))
	} else {
		out = append(append(out, 'r'), w.b...)
	}
	sum := sha256.Sum256(w.b)
	return append(out, sum[:16]...)
}

// Decode reads what Encode wrote; DataLoss when it is anything else.
func Decode(b []byte) (*Entry, error) {
	bad := errs.New(errs.DataLoss, "no entry of the cache, or a damaged one")
	if len(b) < len(magic)+17 || len(b) > Most || string(b[:len(magic)]) != magic {
		return nil, bad
	}
	body, sum := b[len(magic)+1:len(b)-16], b[len(b)-16:]
	switch b[len(magic)] {
	case 'r':
	case 'z':
		var err error
		if body, err = unpacker().DecodeAll(body, nil); err != nil {
			return nil, bad
		}
	default:
		return nil, bad
	}
	if is := sha256.Sum256(body); !bytes.Equal(is[:16], sum) {
		return nil, bad
	}
	r := reader{b: body}
	e := &Entry{Key: r.sum(), Task: id.Task(r.string()), Took: time.Duration(r.int())}
	e.Usage = run.Usage{CPU: time.Duration(r.int()), PeakMemory: r.int(), Sampled: r.bool()}
	e.Log = r.content()
	for range r.count(36) {
		e.Files = append(e.Files, File{Path: r.string(), Perm: r.perm(), Content: r.content()})
	}
	for range r.count(2) {
		e.Links = append(e.Links, Link{Path: r.string(), Target: r.string()})
	}
	for range r.count(2) {
		e.Dirs = append(e.Dirs, Dir{Path: r.string(), Perm: r.perm()})
	}
	if r.bad || len(r.b) > 0 {
		return nil, bad
	}
	return e, e.Check()
}

type writer struct{ b []byte }

func (w *writer) int(v int64) { w.b = binary.AppendVarint(w.b, v) }

func (w *writer) string(s string) {
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

// sum writes a digest as its 32 bytes; one that is none becomes zeros, which
// Decode gives back as a digest of nothing known.
func (w *writer) sum(d digest.Digest) {
	var raw [sha256.Size]byte
	if b, err := hex.DecodeString(string(d)); err == nil {
		copy(raw[:], b)
	}
	w.b = append(w.b, raw[:]...)
}

func (w *writer) content(c Content) {
	w.sum(c.Digest)
	w.int(c.Size)
	w.bool(c.Inline != nil)
	if c.Inline != nil {
		w.string(string(c.Inline))
	}
}

// reader takes values off b; bad is set once there was none.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many values follow, each at least so many bytes long.
func (r *reader) count(each int) int64 {
	n := r.int()
	if n < 0 || n > int64(len(r.b)/each) {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) perm() uint32 {
	v := r.int()
	if v < 0 || v > 0o777 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *reader) string() string {
	n, used := binary.Uvarint(r.b)
	if used <= 0 || n > uint64(len(r.b)-used) {
		r.fail()
		return ""
	}
	s := string(r.b[used : used+int(n)])
	r.b = r.b[used+int(n):]
	return s
}

func (r *reader) bool() bool {
	if len(r.b) == 0 || r.b[0] > 1 {
		r.fail()
		return false
	}
	v := r.b[0] == 1
	r.b = r.b[1:]
	return v
}

func (r *reader) sum() digest.Digest {
	if len(r.b) < sha256.Size {
		r.fail()
		return ""
	}
	d := digest.Digest(hex.EncodeToString(r.b[:sha256.Size]))
	r.b = r.b[sha256.Size:]
	return d
}

func (r *reader) content() Content {
	c := Content{Digest: r.sum(), Size: r.int()}
	if r.bool() {
		c.Inline = []byte(r.string())
	}
	return c
}
