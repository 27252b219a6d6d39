package content

import (
	"bytes"
	"os"
)

// block is what is looked at for zeros at once: the block of most file
// systems.
const block = 4096

var zeros [block]byte

// Holes writes a new file from its start and leaves out blocks of zeros, so
// that a sparse file takes no more room than it did.
type Holes struct {
	f           *os.File
	off, filled int64 // the next byte; the end of what was written
}

// NewHoles returns a writer to an empty file.
func NewHoles(f *os.File) *Holes { return &Holes{f: f} }

// Write takes the next bytes.
func (h *Holes) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		gap, full := h.zeros(p[n:]), 0
		for rest := p[n+gap:]; len(rest) > 0; rest = p[n+gap+full:] {
			piece := rest[:min(len(rest), h.left(gap+full))]
			if bytes.Equal(piece, zeros[:len(piece)]) {
				break
			}
			full += len(piece)
		}
		if full > 0 {
			if _, err := h.f.WriteAt(p[n+gap:n+gap+full], h.off+int64(gap)); err != nil {
				return n, err
			}
			h.filled = h.off + int64(gap+full)
		}
		n += gap + full
		h.off += int64(gap + full)
	}
	return len(p), nil
}

// zeros is how many bytes at the start of p need not be written.
func (h *Holes) zeros(p []byte) int {
	n := 0
	for n < len(p) {
		piece := p[n:min(len(p), n+h.left(n))]
		if !bytes.Equal(piece, zeros[:len(piece)]) {
			break
		}
		n += len(piece)
	}
	return n
}

// left is how far it is to the end of the block that is n bytes on.
func (h *Holes) left(n int) int { return block - int((h.off+int64(n))%block) }

// Finish makes the file as long as what was written. It must be called.
func (h *Holes) Finish() error {
	if h.filled == h.off {
		return nil
	}
	return h.f.Truncate(h.off)
}
