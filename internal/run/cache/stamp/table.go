package stamp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brood/internal/base/content"
)

// Kind says by which name a content is remembered.
type Kind uint8

// The kinds.
const (
	Blob   Kind = 1 // git's object id of an input
	Digest Kind = 2 // the SHA-256 of an output
	Bytes  Kind = 3 // git's object id of an input's bytes, whatever git would record
)

// maxTable bounds what is read: about a million files.
const maxTable = 256 << 20

const magic = "brood stamps 1\n"

type name struct {
	kind Kind
	path string
}

type value struct {
	stat  Stat
	id    string
	owner string
	used  bool // asked for or set by this process
}

// Table holds the stamps of one workspace.
type Table struct {
	file string

	mu    sync.Mutex // guards what follows
	m     map[name]value
	dirty bool
}

// Load reads the table in file. A missing or damaged one is empty.
func Load(file string) *Table {
	t := &Table{file: file, m: map[name]value{}}
	b, err := content.ReadFile(file, file, maxTable)
	if err == nil {
		if m, ok := decode(b); ok {
			t.m = m
		}
	}
	return t
}

// Get returns the id that the content had when the file had this Stat.
func (t *Table) Get(k Kind, path string, s Stat) (id string, ok bool) {
	if t == nil {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.m[name{k, path}]
	if !ok || v.stat != s || v.id == "" {
		return "", false
	}
	if !v.used {
		v.used = true
		t.m[name{k, path}] = v
	}
	return v.id, true
}

// Put remembers the id of a file that was read after the clock showed now.
// One that was written just before is not remembered: a second write within
// the same tick of the file system's clock would not show.
func (t *Table) Put(k Kind, path string, s Stat, id string, now time.Time) {
	if t != nil && s.Settled(now) {
		t.Force(k, path, s, id)
	}
}

// Force is Put of a file whose times cannot be those of a later write.
func (t *Table) Force(k Kind, path string, s Stat, id string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.m[name{k, path}]
	t.m[name{k, path}] = value{stat: s, id: id, owner: old.owner, used: true}
	t.dirty = true
}

// Own notes which task added the output at path; "" takes it back.
func (t *Table) Own(path, owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.m[name{Digest, path}]
	if v.owner == owner {
		return
	}
	v.owner, v.used = owner, true
	t.m[name{Digest, path}] = v
	t.dirty = true
}

// Owner returns the task that added the output at path, "" when none is known.
func (t *Table) Owner(path string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[name{Digest, path}].owner
}

// OwnedBy returns the paths that owner has.
func (t *Table) OwnedBy(owner string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for n, v := range t.m {
		if v.owner == owner {
			all = append(all, n.path)
		}
	}
	return all
}

// Forget drops what is known of the output at path.
func (t *Table) Forget(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.m[name{Digest, path}]; ok {
		delete(t.m, name{Digest, path})
		t.dirty = true
	}
}

// Save writes the table if something changed. When most of it was not used,
// the unused stamps whose files are gone are dropped.
func (t *Table) Save(root string) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dirty {
		return nil
	}
	t.prune(root)
	dir := filepath.Dir(t.file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".stamps-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(encode(t.m)); err != nil {
		return errors.Join(err, f.Close())
	}
	if err = f.Close(); err != nil {
		return err
	}
	t.dirty = false
	return os.Rename(f.Name(), t.file)
}

func (t *Table) prune(root string) {
	var idle []name
	for n, v := range t.m {
		if !v.used {
			idle = append(idle, n)
		}
	}
	if len(idle) <= len(t.m)/2 {
		return
	}
	for _, n := range idle {
		if _, err := Of(filepath.Join(root, n.path)); errors.Is(err, fs.ErrNotExist) {
			delete(t.m, n)
		}
	}
}

func encode(m map[name]value) []byte {
	b := make([]byte, 0, len(m)*128+64)
	b = append(b, magic...)
	b = binary.AppendUvarint(b, uint64(len(m)))
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for n, v := range m {
		b = append(b, byte(n.kind))
		str(n.path)
		str(v.id)
		str(v.owner)
		b = binary.AppendVarint(b, v.stat.Size)
		b = binary.AppendVarint(b, v.stat.MTime)
		b = binary.AppendVarint(b, v.stat.CTime)
		b = binary.AppendUvarint(b, v.stat.Ino)
		b = binary.AppendUvarint(b, uint64(v.stat.Mode))
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:8]...)
}

func decode(b []byte) (map[name]value, bool) {
	if len(b) < len(magic)+8 || string(b[:len(magic)]) != magic {
		return nil, false
	}
	body, tail := b[:len(b)-8], b[len(b)-8:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:8], tail) {
		return nil, false
	}
	d := reader{b: body[len(magic):]}
	n := d.uvarint()
	if n > uint64(len(b)/9) {
		return nil, false
	}
	m := make(map[name]value, n)
	for range n {
		k := name{kind: Kind(d.byte()), path: d.string()}
		v := value{id: d.string(), owner: d.string()}
		v.stat = Stat{Size: d.varint(), MTime: d.varint(), CTime: d.varint(), Ino: d.uvarint(), Mode: uint32(d.uvarint())}
		m[k] = v
	}
	return m, !d.bad && len(d.b) == 0
}

// reader takes values off b; bad is set once there was none.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
