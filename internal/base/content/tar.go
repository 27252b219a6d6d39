package content

import (
	"archive/tar"
	"errors"
	"io"

	"brood/internal/base/errs"
)

// tarBlock is what headers and content of a tar stream are padded to.
const tarBlock = 512

// Tar reads a tar stream that must be whole. archive/tar takes the end of its
// input for the end of the archive, and so a stream that was cut between two
// entries, or is empty, for a shorter one; here it must end as the format
// says, with zeros. One block of them is enough: some programs write no more.
type Tar struct {
	*tar.Reader
	in zeroTail
}

// NewTar returns a reader of the tar stream r.
func NewTar(r io.Reader) *Tar {
	t := &Tar{in: zeroTail{r: r}}
	t.Reader = tar.NewReader(&t.in)
	return t
}

// Next is Next of archive/tar; a stream that is cut short is a DataLoss.
func (t *Tar) Next() (*tar.Header, error) {
	// Zeros within a file are no end: what counts comes after it.
	if _, err := io.Copy(io.Discard, t.Reader); err != nil {
		return nil, cut(err)
	}
	t.in.mark()
	h, err := t.Reader.Next()
	if errors.Is(err, io.EOF) && !t.in.ended() {
		err = io.ErrUnexpectedEOF
	}
	return h, cut(err)
}

// Read is Read of archive/tar; a stream that is cut short is a DataLoss.
func (t *Tar) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	return n, cut(err)
}

func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && errs.CodeOf(err) == errs.Internal {
		return errs.New(errs.DataLoss, "the tar stream is cut short: it ends before the zeros that are its end")
	}
	return err
}

// zeroTail knows whether all that was read since mark are zeros.
type zeroTail struct {
	r     io.Reader
	total int64
	start int64 // where what counts begins; behind the padding of the last file
	other bool  // something else than zeros was read from there on
}

func (z *zeroTail) mark() {
	z.start, z.other = (z.total+tarBlock-1)/tarBlock*tarBlock, false
}

func (z *zeroTail) ended() bool { return !z.other && z.total-z.start >= tarBlock }

func (z *zeroTail) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	skip := min(max(0, z.start-z.total), int64(n))
	z.total += int64(n)
	for _, b := range p[skip:n] {
		if z.other {
			break
		}
		z.other = b != 0
	}
	return n, err
}
