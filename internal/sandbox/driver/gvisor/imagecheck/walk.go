package imagecheck

import (
	"errors"
	"io"
	"math"
)

// Tags of objects, as they stand before each.
const (
	tagBool = iota
	tagInt
	tagUint
	tagFloat32
	tagFloat64
	tagNil
	tagRef
	tagString
	tagSlice
	tagArray
	tagMap
	tagStruct
	tagNone
	tagMany
	tagInterface
	tagComplex64
	tagComplex128
	tagType
)

// Tags of the types inside references and interfaces.
const (
	specID = iota
	specPointer
	specArray
	specSlice
	specMap
	specNil
)

const (
	// objectsFlag in a header says that its number counts objects, not bytes.
	objectsFlag = 1 << 63
	// maxDepth bounds nesting: objects refer to each other, they nest little.
	maxDepth = 200
	// maxTypes bounds what is remembered.
	maxTypes = 1 << 16
)

// Names in the format that say which pages were saved.
const (
	rangeType = "pkg/sentry/pgalloc.memAcctFlatSegment"
	infoType  = "pkg/sentry/pgalloc.memAcctInfo"
)

// typ is one type of a graph.
type typ struct {
	name   string
	fields []string
}

// walker goes over a stream of graphs. Its first error stays, and everything
// it reads after it is zero.
type walker struct {
	src  io.Reader
	left int64 // bytes that src still has
	buf  []byte
	pos  int
	end  int
	err  error

	types []typ // of the graph being read

	sawRanges bool
	committed uint64
}

func newWalker(r io.Reader, size int64) *walker {
	return &walker{src: r, left: max(size, 0), buf: make([]byte, 256<<10)}
}

// all walks to the end and returns how many graphs there are.
func (w *walker) all() (graphs int, err error) {
	for w.err == nil {
		if w.pos == w.end && w.left == 0 {
			return graphs, nil
		}
		n := w.uint()
		if n&objectsFlag == 0 {
			w.skip(n)
			continue
		}
		w.graph(n &^ objectsFlag)
		graphs++
	}
	return graphs, w.err
}

// graph walks over the types and then the count objects of one graph, each
// with its number before it.
func (w *walker) graph(count uint64) {
	w.types = w.types[:0]
	tag := w.uint()
	for ; w.err == nil && tag == tagType; tag = w.uint() {
		w.typ()
	}
	for i := uint64(0); i < count && w.err == nil; i++ {
		if i > 0 {
			tag = w.uint()
		}
		if tag != tagUint {
			w.fail(errBad)
			return
		}
		w.uint()
		w.object(0)
	}
}

func (w *walker) typ() {
	t := typ{name: w.string()}
	n := w.uint()
	if n > maxTypes || len(w.types) == maxTypes {
		w.fail(errBad)
		return
	}
	keep := t.name == rangeType || t.name == infoType
	for ; n > 0 && w.err == nil; n-- {
		if name := w.string(); keep {
			t.fields = append(t.fields, name)
		}
	}
	if !keep {
		t.name = ""
	}
	w.types = append(w.types, t)
}

// object walks over one object with its tag and returns its number when it
// is one; a boolean counts as 0 or 1.
func (w *walker) object(depth int) uint64 { return w.body(w.uint(), depth) }

// body walks over one object whose tag was read.
func (w *walker) body(tag uint64, depth int) uint64 {
	if depth > maxDepth {
		w.fail(errBad)
	}
	if w.err != nil {
		return 0
	}
	switch tag {
	case tagBool, tagInt, tagUint, tagFloat32, tagFloat64:
		return w.uint()
	case tagComplex64, tagComplex128:
		w.uint()
		w.uint()
	case tagNil, tagNone:
	case tagRef:
		w.ref()
	case tagString:
		w.skip(w.uint())
	case tagSlice:
		w.uint()
		w.uint()
		w.ref()
	case tagArray:
		w.sequence(1, depth)
	case tagMap:
		w.sequence(2, depth)
	case tagStruct:
		w.structure(depth)
	case tagMany:
		for n := w.uint(); n > 0 && w.err == nil; n-- {
			w.object(depth + 1)
		}
	case tagInterface:
		w.spec(depth)
		w.object(depth + 1)
	case tagType:
		w.typ()
	default:
		w.fail(errBad)
	}
	return 0
}

// sequence walks over an array (width 1) or a map (width 2): only the first
// of each column has its tag.
func (w *walker) sequence(width, depth int) {
	n := w.uint()
	if n == 0 {
		return
	}
	var tags [2]uint64
	for c := range width {
		tags[c] = w.uint()
		w.body(tags[c], depth+1)
	}
	if weightless(tags[0]) && (width == 1 || weightless(tags[1])) {
		return // the rest takes no bytes, however many they are
	}
	for n--; n > 0 && w.err == nil; n-- {
		for c := range width {
			w.body(tags[c], depth+1)
		}
	}
}

func weightless(tag uint64) bool { return tag == tagNil || tag == tagNone }

func (w *walker) ref() {
	w.uint()
	dots := w.uint()
	for n := dots; n > 0 && w.err == nil; n-- {
		// A number that is not negative is an index, a negative one the
		// length of a field's name, which follows.
		if d := w.uint(); d&1 != 0 {
			w.skip(d>>1 + 1)
		}
	}
	if dots != 0 {
		w.spec(0)
	}
}

func (w *walker) spec(depth int) {
	if depth > maxDepth {
		w.fail(errBad)
	}
	if w.err != nil {
		return
	}
	switch w.uint() {
	case specID:
		w.uint()
	case specPointer, specSlice:
		w.spec(depth + 1)
	case specArray:
		w.uint()
		w.spec(depth + 1)
	case specMap:
		w.spec(depth + 1)
		w.spec(depth + 1)
	case specNil:
	default:
		w.fail(errBad)
	}
}

func (w *walker) structure(depth int) {
	t := w.typeOf(w.uint())
	if t == nil || t.name != rangeType {
		w.object(depth + 1)
		return
	}
	var start, end, committed uint64
	w.fields(t, depth, func(name string) {
		switch name {
		case "Start":
			start = w.object(depth + 1)
		case "End":
			end = w.object(depth + 1)
		case "Value":
			committed = w.info(depth + 1)
		default:
			w.object(depth + 1)
		}
	})
	if end < start || w.committed > math.MaxUint64-(end-start) {
		w.fail(errBad)
		return
	}
	w.sawRanges = true
	w.committed += committed * (end - start)
}

// info walks over what is known about a range and returns 1 when its pages
// were saved.
func (w *walker) info(depth int) (committed uint64) {
	tag := w.uint()
	if tag != tagStruct {
		w.body(tag, depth)
		return 0
	}
	t := w.typeOf(w.uint())
	if t == nil || t.name != infoType {
		w.object(depth + 1)
		return 0
	}
	w.fields(t, depth, func(name string) {
		if v := w.object(depth + 1); name == "knownCommitted" && v != 0 {
			committed = 1
		}
	})
	return committed
}

// fields calls f for each field of a structure, which must walk over it.
func (w *walker) fields(t *typ, depth int, f func(name string)) {
	if depth > maxDepth || w.uint() != tagMany || w.uint() != uint64(len(t.fields)) {
		w.fail(errBad)
	}
	for _, name := range t.fields {
		if w.err != nil {
			return
		}
		f(name)
	}
}

// typeOf returns a type by its number; nil for 0, the structure without
// fields, which is not listed.
func (w *walker) typeOf(id uint64) *typ {
	if id > uint64(len(w.types)) {
		w.fail(errBad)
		return nil
	}
	if id == 0 {
		return nil
	}
	return &w.types[id-1]
}

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// uint reads a number of seven bits a byte, the lowest first.
func (w *walker) uint() uint64 {
	var u uint64
	for shift := 0; shift < 70; shift += 7 {
		if w.pos == w.end && !w.more() {
			return 0
		}
		b := w.buf[w.pos]
		w.pos++
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return u
		}
	}
	w.fail(errBad)
	return 0
}

// string reads a name; long ones are of no interest and are cut.
func (w *walker) string() string {
	n := w.uint()
	var s []byte
	for i := uint64(0); i < n && w.err == nil; i++ {
		if i == 256 {
			w.skip(n - i)
			break
		}
		if w.pos == w.end && !w.more() {
			break
		}
		s = append(s, w.buf[w.pos])
		w.pos++
	}
	return string(s)
}

func (w *walker) skip(n uint64) {
	if n > uint64(w.end-w.pos)+uint64(w.left) {
		w.fail(errCut)
		return
	}
	for n > 0 && w.err == nil {
		if w.pos == w.end && !w.more() {
			return
		}
		step := min(n, uint64(w.end-w.pos))
		w.pos += int(step)
		n -= step
	}
}

// more fills the buffer, which is used up.
func (w *walker) more() bool {
	if w.err != nil {
		return false
	}
	n := min(w.left, int64(len(w.buf)))
	if n == 0 {
		w.fail(errCut)
		return false
	}
	got, err := io.ReadFull(w.src, w.buf[:n])
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCut
		}
		w.fail(err)
		return false
	}
	w.pos, w.end = 0, got
	w.left -= int64(got)
	return true
}
