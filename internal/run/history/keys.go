package history

import (
	"encoding/binary"
	"encoding/hex"
	"time"

	"brood/internal/base/digest"
	"brood/internal/run"
)

// keptKeys is how many different keys of a task are remembered.
const keptKeys = 5

// keyRecord is a key that a task had: when, how it went, and the digests of
// its groups.
type keyRecord struct {
	key    [32]byte
	began  int64
	run    string
	status run.Status
	groups [][32]byte
}

func newKeyRecord(t Task, r *Run) keyRecord {
	k := keyRecord{began: r.Began.UnixNano(), run: r.ID, status: t.Status, key: raw(t.Key)}
	for _, g := range t.Parts.Groups {
		k.groups = append(k.groups, raw(g.Sum))
	}
	return k
}

func raw(d digest.Digest) (b [32]byte) {
	if len(d) == 64 {
		_, _ = hex.Decode(b[:], []byte(d)) // a digest has hex digits
	}
	return b
}

func encodeKeys(all []keyRecord) []byte {
	b := []byte{1} // the format of what follows
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, k := range all {
		b = append(b, k.key[:]...)
		b = binary.AppendVarint(b, k.began)
		str(k.run)
		str(string(k.status))
		b = binary.AppendUvarint(b, uint64(len(k.groups)))
		for _, g := range k.groups {
			b = append(b, g[:]...)
		}
	}
	return b
}

// decodeKeys returns what it can read.
func decodeKeys(b []byte) []keyRecord {
	if len(b) == 0 || b[0] != 1 {
		return nil
	}
	b = b[1:]
	var all []keyRecord
	for len(b) >= 32 {
		var k keyRecord
		b = b[copy(k.key[:], b):]
		v, n := binary.Varint(b)
		if n <= 0 {
			return all
		}
		k.began, b = v, b[n:]
		var text [2]string
		for i := range text {
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return all
			}
			text[i], b = string(b[n:n+int(size)]), b[n+int(size):]
		}
		k.run, k.status = text[0], run.Status(text[1])
		count, n := binary.Uvarint(b)
		if n <= 0 || count > uint64(len(b)-n)/32 {
			return all
		}
		b = b[n:]
		for range count {
			k.groups = append(k.groups, [32]byte(b[:32]))
			b = b[32:]
		}
		all = append(all, k)
	}
	return all
}

func (k keyRecord) when() time.Time { return time.Unix(0, k.began) }
