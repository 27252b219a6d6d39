package proto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"brood/internal/base/errs"
)

// MaxHeader bounds a JSON request or reply in bytes: argv, environment and a
// fork's inputs fit, and a damaged length cannot make anyone allocate more.
const MaxHeader = 4 << 20

// Request is the header of every stream.
type Request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Reply answers a request: a result or a failure.
type Reply struct {
	Error  *Failure        `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Failure is an error as it travels.
type Failure struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Meta    map[string]string `json:"meta,omitempty"`
}

// NewFailure makes err ready to travel.
func NewFailure(err error) *Failure {
	return &Failure{Code: errs.CodeOf(err).String(), Message: errs.Text(err), Meta: errs.MetaOf(err)}
}

// Err makes an error with a code of it again. A code of a newer guest that we
// do not know becomes Internal.
func (f *Failure) Err() error {
	code := errs.Internal
	for _, c := range errs.Codes() {
		if c.String() == f.Code {
			code = c
		}
	}
	err := errs.New(code, "%s", f.Message)
	for k, v := range f.Meta {
		err = errs.With(err, k, v)
	}
	return err
}

// WriteMessage writes v as length-prefixed JSON in one Write.
func WriteMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(body) > MaxHeader {
		return errs.New(errs.InvalidArgument, "message has %d bytes, at most %d are allowed: shorten arguments, environment or inputs", len(body), MaxHeader)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	if _, err := w.Write(append(b, body...)); err != nil {
		return err
	}
	return nil
}

// ReadMessage reads length-prefixed JSON into v. It returns io.EOF only when
// nothing came at all.
func ReadMessage(r io.Reader, v any) error {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(prefix[:])
	if n > MaxHeader {
		return errs.New(errs.InvalidArgument, "message says it has %d bytes, at most %d are allowed", n, MaxHeader)
	}
	body, err := readN(r, int(n))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return errs.New(errs.InvalidArgument, "message is not understood: %w", err)
	}
	return nil
}

// readN reads n bytes, allocating as they come, so that a length alone costs
// nothing.
func readN(r io.Reader, n int) ([]byte, error) {
	const step = 64 << 10
	body := make([]byte, 0, min(n, step))
	for len(body) < n {
		have := len(body)
		want := min(n-have, step)
		body = append(body, make([]byte, want)...)
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return body, nil
}
