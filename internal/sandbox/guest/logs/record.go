package logs

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Stream says where bytes came from.
type Stream byte

// The streams of a program.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Entry is what was read from a program at once.
type Entry struct {
	Stream Stream
	Time   time.Time
	Data   []byte
}

const (
	segmentMagic  = "BROODLOG"
	segmentHeader = len(segmentMagic) + 8
	recordMark    = 0xb7
	recordHeader  = 1 + 1 + 8 + 4 + 4
	// MaxData bounds one record's data in bytes: the size of a pipe.
	MaxData = 64 << 10
	// DefaultLimit is the size at which a segment is closed, in bytes.
	DefaultLimit = 8 << 20
	// MinLimit is the least limit: a record and its headers fit.
	MinLimit = 128 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendSegment(dst []byte, generation uint64) []byte {
	dst = append(dst, segmentMagic...)
	return binary.BigEndian.AppendUint64(dst, generation)
}

// parseSegment returns a segment's generation; 0 is none.
func parseSegment(b []byte) uint64 {
	if len(b) < segmentHeader || string(b[:len(segmentMagic)]) != segmentMagic {
		return 0
	}
	return binary.BigEndian.Uint64(b[len(segmentMagic):])
}

func appendRecord(dst []byte, e Entry) []byte {
	start := len(dst)
	dst = append(dst, recordMark, byte(e.Stream))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Time.UnixNano()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.Data)))
	sum := crc32.Update(crc32.Checksum(dst[start:], castagnoli), castagnoli, e.Data)
	dst = binary.BigEndian.AppendUint32(dst, sum)
	return append(dst, e.Data...)
}

// verdict is what the bytes at a record's place are.
type verdict int

const (
	whole verdict = iota
	short         // not all there yet, or torn for ever
	bad           // no record
)

// parseRecord parses the record that b begins with. Its data is a part of b.
func parseRecord(b []byte) (e Entry, size int, v verdict) {
	if len(b) < recordHeader {
		return Entry{}, 0, short
	}
	n := int(binary.BigEndian.Uint32(b[10:]))
	stream := Stream(b[1])
	if b[0] != recordMark || n > MaxData || (stream != Stdout && stream != Stderr) {
		return Entry{}, 0, bad
	}
	if len(b) < recordHeader+n {
		return Entry{}, 0, short
	}
	data := b[recordHeader : recordHeader+n]
	sum := crc32.Update(crc32.Checksum(b[:recordHeader-4], castagnoli), castagnoli, data)
	if sum != binary.BigEndian.Uint32(b[recordHeader-4:]) {
		return Entry{}, 0, bad
	}
	nanos := int64(binary.BigEndian.Uint64(b[2:]))
	return Entry{Stream: stream, Time: time.Unix(0, nanos), Data: data}, recordHeader + n, whole
}
