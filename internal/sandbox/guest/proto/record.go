package proto

import (
	"encoding/binary"
	"hash/crc32"
)

// A record is length, checksum, payload: two big-endian uint32 and at most
// MaxRecord bytes.
const (
	recordHeader = 8
	// MaxRecord bounds the payload of one record in bytes. It is what the
	// guest must be able to hold: a chunk with all headers before it.
	// Larger writes are split.
	MaxRecord = MaxChunk + 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// muxHeader is the size of the multiplexer's header in bytes.
const muxHeader = 12

// Announces reports whether p is a header of the multiplexer (yamux's
// specification: version, type, flags, stream, length) that data follows,
// which is written next: the two can travel in one piece.
func Announces(p []byte) bool {
	return len(p) == muxHeader && p[0] == 0 && p[1] == 0 && binary.BigEndian.Uint32(p[8:]) > 0
}

// AppendRecords appends p to dst as records.
func AppendRecords(dst, p []byte) []byte {
	for len(p) > 0 {
		n := min(len(p), MaxRecord)
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(p[:n], castagnoli))
		dst = append(dst, p[:n]...)
		p = p[n:]
	}
	return dst
}

// Unframer takes records apart. A damaged one makes it deaf: everything up to
// the next Reset is dropped, because there is no next record to be found
// without a resync.
type Unframer struct {
	buf  []byte
	deaf bool
}

// Reset forgets a half-received record; a new session begins.
func (u *Unframer) Reset() {
	u.buf = u.buf[:0]
	u.deaf = false
}

// Feed takes bytes up to the end of one record. It returns how many it took
// and, when a record is complete, its payload, valid until the next call.
func (u *Unframer) Feed(b []byte) (taken int, payload []byte) {
	if u.deaf {
		return len(b), nil
	}
	if len(u.buf) < recordHeader {
		n := min(recordHeader-len(u.buf), len(b))
		u.buf = append(u.buf, b[:n]...)
		taken, b = n, b[n:]
		if len(u.buf) < recordHeader {
			return taken, nil
		}
	}
	size := int(binary.BigEndian.Uint32(u.buf))
	if size == 0 || size > MaxRecord {
		u.deaf = true
		return taken + len(b), nil
	}
	n := min(recordHeader+size-len(u.buf), len(b))
	u.buf = append(u.buf, b[:n]...)
	taken += n
	if len(u.buf) < recordHeader+size {
		return taken, nil
	}
	payload = u.buf[recordHeader:]
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(u.buf[4:]) {
		u.deaf = true
		return taken, nil
	}
	u.buf = u.buf[:0]
	return taken, payload
}

// Deaf reports whether a damaged record was met since the last Reset.
func (u *Unframer) Deaf() bool { return u.deaf }
