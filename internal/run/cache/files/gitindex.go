package files

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"brood/internal/base/errs"
	"brood/internal/run/cache/stamp"
)

// record is an entry of git's index.
type record struct {
	path  string
	mode  uint32
	id    string
	stage uint8
	// What git knew of the file in the work tree, each cut to 32 bits.
	ctime, mtime [2]uint32
	ino, size    uint32
}

// git's modes of index entries.
const (
	modeFile    = 0o100644
	modeExec    = 0o100755
	modeLink    = 0o120000
	modeGitlink = 0o160000
	modeFolder  = 0o040000 // a folder left out of a sparse index
)

// errForeign says that git itself must read this index.
var errForeign = errs.New(errs.Unsupported, "the index has parts that only git reads")

// parseIndex reads an index file (gitformat-index(5)) of versions 2 to 4. Split
// and sparse indexes are errForeign.
func parseIndex(b []byte, idLen int) ([]record, error) {
	if len(b) < 12+idLen || string(b[:4]) != "DIRC" {
		return nil, errs.New(errs.DataLoss, "no index of git")
	}
	version, count := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version < 2 || version > 4 {
		return nil, errForeign
	}
	body := b[12 : len(b)-idLen]
	if uint64(count) > uint64(len(body)/(42+idLen)) {
		return nil, errs.New(errs.DataLoss, "git's index is cut short")
	}
	p := indexParser{b: body, idLen: idLen, version: version}
	all := make([]record, 0, count)
	for range count {
		r, err := p.next()
		if err != nil {
			return nil, err
		}
		if r.mode == modeFolder {
			return nil, errForeign
		}
		all = append(all, r)
	}
	return all, p.extensions()
}

type indexParser struct {
	b       []byte
	idLen   int
	version uint32
	last    []byte // the path before, which version 4 builds on
}

func (p *indexParser) next() (record, error) {
	short := errs.New(errs.DataLoss, "git's index is cut short")
	fixed := 40 + p.idLen + 2
	if len(p.b) < fixed {
		return record{}, short
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(p.b[at:]) }
	r := record{
		ctime: [2]uint32{u32(0), u32(4)}, mtime: [2]uint32{u32(8), u32(12)},
		ino: u32(20), mode: u32(24), size: u32(36),
		id: hex.EncodeToString(p.b[40 : 40+p.idLen]),
	}
	flags := binary.BigEndian.Uint16(p.b[40+p.idLen:])
	r.stage = uint8(flags >> 12 & 3)
	at := fixed
	if flags&0x4000 != 0 { // extended
		if p.version < 3 || len(p.b) < fixed+2 {
			return record{}, errs.New(errs.DataLoss, "git's index has a flag that its version lacks")
		}
		at += 2
	}
	name := p.b[at:]
	if p.version == 4 {
		strip, n := offset(name)
		if n == 0 || strip > len(p.last) {
			return record{}, short
		}
		name, at = name[n:], at+n
		p.last = p.last[:len(p.last)-strip]
	} else {
		p.last = p.last[:0]
	}
	end := bytes.IndexByte(name, 0)
	if end < 0 {
		return record{}, short
	}
	p.last = append(p.last, name[:end]...)
	r.path = string(p.last)
	at += end + 1
	if p.version < 4 {
		at = (at + 7) &^ 7 // padded with 1 to 8 zeros
	}
	if at > len(p.b) {
		return record{}, short
	}
	p.b = p.b[at:]
	return r, nil
}

// offset reads the number that version 4 puts in front of a path; n is 0 when
// there is none.
func offset(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		n++
		v = v<<7 | int(c&127)
		if c&128 == 0 {
			return v, n
		}
		v++
	}
	return 0, 0
}

// extensions passes over what follows the entries. Those that begin with a
// lower-case letter change what the entries mean.
func (p *indexParser) extensions() error {
	for len(p.b) > 0 {
		if len(p.b) < 8 {
			return errs.New(errs.DataLoss, "git's index is cut short")
		}
		size := binary.BigEndian.Uint32(p.b[4:])
		if p.b[0] >= 'a' {
			return errForeign
		}
		if uint64(size) > uint64(len(p.b)-8) {
			return errs.New(errs.DataLoss, "git's index is cut short")
		}
		p.b = p.b[8+size:]
	}
	return nil
}

// proves says that the file with this stat data is the one that git recorded.
// indexTime is when the index was written: a file as young as that may have
// been written again without a trace.
func (r record) proves(st stamp.Stat, indexTime int64) bool {
	if r.stage != 0 || r.size != uint32(st.Size) || r.ino != uint32(st.Ino) {
		return false
	}
	cut := func(ns int64) [2]uint32 { return [2]uint32{uint32(ns / 1e9), uint32(ns % 1e9)} }
	if cut(st.MTime) != r.mtime || cut(st.CTime) != r.ctime {
		return false
	}
	margin := int64(stamp.Granule)
	if st.MTime%1e9 == 0 && indexTime%1e9 == 0 {
		margin = 2e9 // a file system that keeps whole seconds, or two
	}
	return max(st.MTime, st.CTime)+margin < indexTime
}
