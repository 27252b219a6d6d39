package erofs

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
)

// Output is where an image is written: an empty file.
type Output interface {
	io.WriterAt
	Truncate(size int64) error
}

// copySize is how much is read at once: large enough that system calls do not
// matter, a multiple of the block size.
const copySize = 1 << 20

// Writer writes one image.
type Writer struct {
	out   Output
	next  int64     // the next free block
	sum   hash.Hash // over all contents and inodes: the UUID
	buf   []byte
	moved func(n int) // told how many bytes of content were read
}

// NewWriter returns a writer to out. moved, when not nil, is called with the
// bytes of content read since the last call.
func NewWriter(out Output, moved func(n int)) *Writer {
	if moved == nil {
		moved = func(int) {}
	}
	return &Writer{out: out, next: 1, sum: sha256.New(), buf: make([]byte, copySize), moved: moved}
}

// NewFile writes the content r gives until its end and returns the file.
func (w *Writer) NewFile(mode uint16, r io.Reader) (*Node, error) {
	n := &Node{Type: File, Mode: mode}
	start := w.next
	for {
		got, err := io.ReadFull(r, w.buf)
		if got > 0 {
			if e := w.content(w.buf[:got]); e != nil {
				return nil, e
			}
			n.size += int64(got)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if n.size == 0 {
		return n, nil
	}
	if w.next > math.MaxUint32 {
		return nil, fmt.Errorf("the image would be larger than %d blocks of %d bytes", uint32(math.MaxUint32), BlockSize)
	}
	n.block = uint32(start)
	return n, nil
}

// content writes p at the next free block and rounds up: only the last piece
// of a file is shorter than the buffer.
func (w *Writer) content(p []byte) error {
	w.sum.Write(p)
	w.moved(len(p))
	off := w.next * BlockSize
	for from := 0; from < len(p); {
		zero := zeroBlock(p[from:min(from+BlockSize, len(p))])
		to := min(from+BlockSize, len(p))
		for to < len(p) && zeroBlock(p[to:min(to+BlockSize, len(p))]) == zero {
			to = min(to+BlockSize, len(p))
		}
		if !zero {
			if _, err := w.out.WriteAt(p[from:to], off+int64(from)); err != nil {
				return err
			}
		}
		from = to
	}
	w.next += blocks(int64(len(p)))
	return nil
}

var zeros [BlockSize]byte

func zeroBlock(p []byte) bool { return bytes.Equal(p, zeros[:len(p)]) }

func blocks(n int64) int64 { return (n + BlockSize - 1) / BlockSize }

// offsetWriter turns WriteAt into Write.
type offsetWriter struct {
	out io.WriterAt
	off int64
}

func (o *offsetWriter) Write(p []byte) (int, error) {
	n, err := o.out.WriteAt(p, o.off)
	o.off += int64(n)
	return n, err
}

// Finish writes the tree under root and the superblock. Nothing may be added
// to the tree or the writer afterwards.
func (w *Writer) Finish(root *Node) error {
	if root.Type != Dir {
		return errors.New("the root of an image must be a directory")
	}
	l := layout{}
	if err := l.place(root); err != nil {
		return err
	}
	sink := &offsetWriter{out: w.out, off: w.next * BlockSize}
	buffered := bufio.NewWriterSize(sink, copySize)
	body := io.MultiWriter(buffered, w.sum)
	if err := w.outliers(body, &l); err != nil {
		return err
	}
	meta := w.next
	if err := l.write(body); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	w.next += blocks(l.size)
	if w.next > math.MaxUint32 {
		return fmt.Errorf("the image would be larger than %d blocks of %d bytes", uint32(math.MaxUint32), BlockSize)
	}
	if err := w.out.Truncate(w.next * BlockSize); err != nil {
		return err
	}
	super := superblock{meta: uint32(meta), blocks: uint32(w.next), inodes: uint64(len(l.nodes)), root: uint16(root.offset / slot)}
	copy(super.uuid[:], w.sum.Sum(nil))
	_, err := w.out.WriteAt(super.block(), 0)
	return err
}

// outliers writes the directories and symlinks that do not fit behind their
// inode.
func (w *Writer) outliers(out io.Writer, l *layout) error {
	for _, n := range l.nodes {
		if n.inline || n.Type == File {
			continue
		}
		data := []byte(n.target)
		if n.Type == Dir {
			data = l.entries(n)
		}
		if len(data) == 0 {
			continue
		}
		if w.next > math.MaxUint32 {
			return errors.New("the image is too large")
		}
		n.block = uint32(w.next)
		padded := make([]byte, blocks(int64(len(data)))*BlockSize)
		copy(padded, data)
		if _, err := out.Write(padded); err != nil {
			return err
		}
		w.next += blocks(int64(len(data)))
	}
	return nil
}
