package proto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"brood/internal/base/errs"
)

// Kind says what a frame of an attached exec is.
type Kind byte

// The kinds of frames. Guest to host: output at its offset, and one Exit or
// Displaced at the end. Host to guest: Stdout and Stderr without data, which
// acknowledge everything before Offset.
const (
	KindStdout    Kind = 1
	KindStderr    Kind = 2
	KindExit      Kind = 3 // Data is a JSON ExitStatus
	KindDisplaced Kind = 4 // another attach took over
)

const frameHeader = 1 + 8 + 4

// MaxFrame bounds a frame's data in bytes. FrameSize is the most a frame takes on the wire.
const (
	FrameSize = 64 << 10
	MaxFrame  = FrameSize - frameHeader
)

// Frame is one message of an attached exec.
type Frame struct {
	Kind   Kind
	Offset uint64
	Data   []byte
}

// AppendFrame appends the wire form of f to dst.
func AppendFrame(dst []byte, f Frame) []byte {
	dst = append(dst, byte(f.Kind))
	dst = binary.BigEndian.AppendUint64(dst, f.Offset)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Data)))
	return append(dst, f.Data...)
}

// ReadFrame reads a frame. Its data is a fresh slice.
func ReadFrame(r io.Reader) (Frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(h[0]), Offset: binary.BigEndian.Uint64(h[1:])}
	n := binary.BigEndian.Uint32(h[9:])
	if f.Kind < KindStdout || f.Kind > KindDisplaced || n > MaxFrame {
		return Frame{}, errs.New(errs.DataLoss, "exec stream is damaged: frame of kind %d with %d bytes", h[0], n)
	}
	if n > 0 {
		f.Data = make([]byte, n)
		if _, err := io.ReadFull(r, f.Data); err != nil {
			return Frame{}, unexpected(err)
		}
	}
	return f, nil
}

// A chunked stream is length, data, …, closed by a zero length (whole) or
// chunkAbort and a Failure as a message (given up by the sender). A length with
// chunkZeros stands for as many zeros, which are not sent: since version 2.
const (
	MaxChunk   = 64 << 10
	chunkAbort = 0xffffffff
	chunkZeros = 0x80000000
	// maxZeros bounds what one length can stand for: between two of them a
	// reader can be held still.
	maxZeros = 1 << 20
	// zeroBlock is how many zeros are worth looking for at once.
	zeroBlock = 4 << 10
)

var zeros [zeroBlock]byte

// ChunkWriter cuts a byte stream into chunks; Close or Abort ends it.
type ChunkWriter struct {
	// Zeros leaves blocks of zeros out, when the reader is of version 2.
	Zeros bool

	w      io.Writer
	buf    []byte
	zeroes int // that were written and not told
}

// NewChunkWriter returns a writer of chunks to w.
func NewChunkWriter(w io.Writer) *ChunkWriter {
	return &ChunkWriter{w: w, buf: make([]byte, 4, 4+MaxChunk)}
}

// Write buffers p and writes full chunks.
func (c *ChunkWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n, err := c.take(p)
		if err != nil {
			return total - len(p), err
		}
		p = p[n:]
	}
	return total, nil
}

// take buffers the beginning of p: up to the next block of zeros, or that.
func (c *ChunkWriter) take(p []byte) (int, error) {
	if c.Zeros && isZeros(p) {
		if err := c.flushData(); err != nil {
			return 0, err
		}
		if c.zeroes += zeroBlock; c.zeroes == maxZeros {
			return zeroBlock, c.flush()
		}
		return zeroBlock, nil
	}
	if c.zeroes > 0 {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	n := min(len(p), cap(c.buf)-len(c.buf))
	if c.Zeros {
		n = min(n, zeroBlock)
		for n < min(len(p), cap(c.buf)-len(c.buf)) && !isZeros(p[n:]) {
			n = min(n+zeroBlock, len(p), cap(c.buf)-len(c.buf))
		}
	}
	c.buf = append(c.buf, p[:n]...)
	if len(c.buf) == cap(c.buf) {
		return n, c.flush()
	}
	return n, nil
}

func isZeros(p []byte) bool {
	return len(p) >= zeroBlock && bytes.Equal(p[:zeroBlock], zeros[:])
}

// flush writes what is buffered, which is zeros or data.
func (c *ChunkWriter) flush() error {
	if c.zeroes == 0 {
		return c.flushData()
	}
	_, err := c.w.Write(binary.BigEndian.AppendUint32(nil, chunkZeros|uint32(c.zeroes)))
	c.zeroes = 0
	return err
}

func (c *ChunkWriter) flushData() error {
	if len(c.buf) == 4 {
		return nil
	}
	binary.BigEndian.PutUint32(c.buf, uint32(len(c.buf)-4))
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:4]
	return err
}

// Close ends the stream whole.
func (c *ChunkWriter) Close() error {
	if err := c.flush(); err != nil {
		return err
	}
	_, err := c.w.Write([]byte{0, 0, 0, 0})
	return err
}

// Abort ends the stream with the reason why it is not whole.
func (c *ChunkWriter) Abort(reason error) error {
	if _, err := c.w.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		return err
	}
	return WriteMessage(c.w, NewFailure(reason))
}

// ChunkReader gives back the byte stream. It ends with io.EOF only when the
// sender closed it whole; a sender's reason is returned as its error.
type ChunkReader struct {
	r    io.Reader
	left int
	hole bool // what is left are zeros
	err  error
}

// NewChunkReader returns a reader of chunks from r.
func NewChunkReader(r io.Reader) *ChunkReader { return &ChunkReader{r: r} }

// Read reads from the current chunk.
func (c *ChunkReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if c.left == 0 {
		if c.err = c.next(); c.err != nil {
			return 0, c.err
		}
	}
	if c.hole {
		n := min(len(p), c.left)
		clear(p[:n])
		c.left -= n
		return n, nil
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err != nil {
		c.err = unexpected(err)
	}
	return n, c.err
}

func (c *ChunkReader) next() error {
	var prefix [4]byte
	if _, err := io.ReadFull(c.r, prefix[:]); err != nil {
		return unexpected(err)
	}
	switch n := binary.BigEndian.Uint32(prefix[:]); {
	case n == 0:
		return io.EOF
	case n == chunkAbort:
		var f Failure
		if err := ReadMessage(c.r, &f); err != nil {
			return unexpected(err)
		}
		return fmt.Errorf("sender gave up: %w", f.Err())
	case n > chunkZeros && n <= chunkZeros+maxZeros:
		c.left, c.hole = int(n-chunkZeros), true
		return nil
	case n > MaxChunk:
		return errs.New(errs.DataLoss, "stream is damaged: chunk of %d bytes", n)
	default:
		c.left, c.hole = int(n), false
		return nil
	}
}

// unexpected makes an end where more was due an error that says so.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
