//go:build linux

package pid1

const (
	// ringSize bounds what is kept of one stream of an exec, in bytes.
	ringSize = 1 << 20
	// ringWindow is how much of it may be unacknowledged before the program
	// is made to wait; the rest stays for hosts that come back with an
	// earlier offset than they acknowledged.
	ringWindow = 768 << 10
	ringFirst  = 16 << 10
)

// ring holds the latest bytes of a stream by their offset in it.
type ring struct {
	buf               []byte // its length is a power of two, or 0
	start, end, acked uint64
}

// room returns how many bytes fit without losing unacknowledged ones.
func (r *ring) room() int { return ringWindow - int(r.end-r.acked) }

// put appends p, dropping the oldest bytes beyond ringSize.
func (r *ring) put(p []byte) {
	r.grow(len(p))
	for len(p) > 0 {
		at := int(r.end % uint64(len(r.buf)))
		n := copy(r.buf[at:], p)
		p = p[n:]
		r.end += uint64(n)
	}
	if r.end-r.start > uint64(len(r.buf)) {
		r.start = r.end - uint64(len(r.buf))
	}
	r.acked = max(r.acked, r.start)
}

// grow makes the buffer large enough for what is unacknowledged, a history of
// as much again, and n bytes more.
func (r *ring) grow(n int) {
	want := min(ringSize, 2*(int(r.end-r.acked)+n))
	size := max(len(r.buf), ringFirst)
	for size < want {
		size *= 2
	}
	if size == len(r.buf) {
		return
	}
	old := *r
	r.buf = make([]byte, size)
	for at := old.start; at < old.end; {
		part := old.at(at)
		for len(part) > 0 {
			c := copy(r.buf[at%uint64(size):], part)
			part = part[c:]
			at += uint64(c)
		}
	}
}

// at returns the bytes from offset, which must be kept, up to the buffer's
// edge: at least one unless offset is the end.
func (r *ring) at(offset uint64) []byte {
	if offset >= r.end {
		return nil
	}
	i := int(offset % uint64(len(r.buf)))
	return r.buf[i:min(len(r.buf), i+int(r.end-offset))]
}

// ack says that the host has everything before offset.
func (r *ring) ack(offset uint64) {
	if offset <= r.end {
		r.acked = max(r.acked, offset)
	}
}
