//go:build linux

package launch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A frame is a header and a JSON payload. The header: 4 bytes length of the
// payload, 2 bytes number of descriptors, 2 bytes protocol, big endian.
// Descriptors travel with the header's first byte.
const headerSize = 8

// ErrProtocol is what Receive returns for a frame of another protocol version.
var ErrProtocol = errors.New("peer speaks another protocol version")

// Conn sends and receives messages with descriptors. One user at a time.
type Conn struct {
	u *net.UnixConn
}

// NewConn wraps a connected stream socket, which it then owns.
func NewConn(u *net.UnixConn) *Conn { return &Conn{u: u} }

// Close closes the connection; a blocked Send or Receive returns.
func (c *Conn) Close() error { return c.u.Close() }

// Send writes v and duplicates of files.
func (c *Conn) Send(v any, files ...*os.File) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(payload) > maxPayload || len(files) > maxFiles {
		return fmt.Errorf("message of %d bytes and %d files is larger than allowed (%d, %d)", len(payload), len(files), maxPayload, maxFiles)
	}
	frame := make([]byte, headerSize, headerSize+len(payload))
	binary.BigEndian.PutUint32(frame[0:], uint32(len(payload)))
	binary.BigEndian.PutUint16(frame[4:], uint16(len(files)))
	binary.BigEndian.PutUint16(frame[6:], Protocol)
	frame = append(frame, payload...)

	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			// SyscallConn instead of Fd: Fd would make the descriptor blocking
			// for every holder of it.
			if fds[i], err = rawFD(f); err != nil {
				return fmt.Errorf("file %d of message: %w", i, err)
			}
		}
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.u.WriteMsgUnix(frame, oob, nil)
	if err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	if n < len(frame) {
		if _, err := c.u.Write(frame[n:]); err != nil {
			return fmt.Errorf("send message: %w", err)
		}
	}
	for _, f := range files {
		keepAlive(f)
	}
	return nil
}

// Receive reads one message into v and returns the descriptors that came with
// it, which the caller then owns. It returns io.EOF alone when the peer closed
// between messages.
func (c *Conn) Receive(v any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	var header [headerSize]byte
	if files, err = c.receiveHeader(header[:]); err != nil {
		return files, err
	}
	if got := binary.BigEndian.Uint16(header[6:]); got != Protocol {
		return files, fmt.Errorf("%w: %d, this is %d", ErrProtocol, got, Protocol)
	}
	if want := int(binary.BigEndian.Uint16(header[4:])); want != len(files) {
		return files, fmt.Errorf("message announces %d files, %d came", want, len(files))
	}
	size := binary.BigEndian.Uint32(header[0:])
	if size > maxPayload {
		return files, fmt.Errorf("message of %d bytes, at most %d are allowed", size, maxPayload)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(c.u, payload); err != nil {
		return files, fmt.Errorf("receive message: %w", noEOF(err))
	}
	return files, decode(payload, v)
}

// receiveHeader reads the header and the descriptors that travel with it.
func (c *Conn) receiveHeader(header []byte) (files []*os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	for got := 0; got < len(header); {
		n, oobn, flags, _, err := c.u.ReadMsgUnix(header[got:], oob)
		if oobn > 0 {
			more, perr := parseFiles(oob[:oobn])
			files = append(files, more...)
			if perr != nil {
				return files, perr
			}
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return files, fmt.Errorf("message carries more than %d files", maxFiles)
		}
		if err != nil {
			if got > 0 {
				err = noEOF(err)
			}
			return files, err
		}
		if n == 0 {
			if got == 0 {
				return files, io.EOF
			}
			return files, io.ErrUnexpectedEOF
		}
		got += n
	}
	return files, nil
}

func parseFiles(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return files, fmt.Errorf("parse descriptors: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// decode is strict: unknown fields and trailing bytes are refused, so that a
// peer never acts on a message that it understands only in part.
func decode(payload []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode message: %w", noEOF(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode message: bytes after its end")
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
