package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"brood/internal/base/content"
	"brood/internal/run/cache/stamp"
)

const (
	foldersMagic = "brood folders 2\n"
	foldersMost  = 256 << 20
)

// loadFolders reads an index of folders; nil when there is none, or it is
// damaged.
func loadFolders(file string) *folders {
	b, err := content.ReadFile(file, file, foldersMost)
	if err != nil {
		return nil
	}
	return decodeFolders(b)
}

// save writes the index. What cannot be written is looked for again.
func (x *folders) save(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "folders-*")
	if err != nil {
		return err
	}
	_, err = f.Write(x.encode())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func (x *folders) encode() []byte {
	w := folderWriter{b: []byte(foldersMagic)}
	w.b = append(append(w.b, x.where[:]...), x.tracked[:]...)
	w.number(len(x.rules))
	for _, r := range x.rules {
		w.text(r.path)
		w.stat(r.stat)
	}
	w.number(len(x.all))
	for _, d := range x.all {
		w.text(d.path)
		w.stat(d.stat)
		w.texts(d.hidden)
	}
	w.texts(x.others)
	sum := sha256.Sum256(w.b)
	return append(w.b, sum[:]...)
}

func decodeFolders(b []byte) *folders {
	n := len(b) - sha256.Size
	if n < len(foldersMagic)+2*sha256.Size || string(b[:len(foldersMagic)]) != foldersMagic {
		return nil
	}
	if sum := sha256.Sum256(b[:n]); !bytes.Equal(sum[:], b[n:]) {
		return nil
	}
	r := folderReader{b: b[len(foldersMagic):n], s: string(b[len(foldersMagic):n])}
	x := &folders{}
	r.take(copy(x.where[:], r.b))
	r.take(copy(x.tracked[:], r.b))
	x.rules = make([]ruleFile, r.number())
	for i := range x.rules {
		x.rules[i] = ruleFile{path: r.text(), stat: r.stat()}
	}
	x.all = make([]folder, r.number())
	for i := range x.all {
		x.all[i] = folder{path: r.text(), stat: r.stat(), hidden: r.texts()}
	}
	x.others = r.texts()
	if r.bad || len(r.b) > 0 {
		return nil
	}
	return x
}

type folderWriter struct{ b []byte }

func (w *folderWriter) number(n int) { w.b = binary.AppendUvarint(w.b, uint64(n)) }

func (w *folderWriter) text(s string) {
	w.number(len(s))
	w.b = append(w.b, s...)
}

func (w *folderWriter) texts(all []string) {
	w.number(len(all))
	for _, s := range all {
		w.text(s)
	}
}

func (w *folderWriter) stat(s stamp.Stat) {
	for _, v := range []int64{s.Size, s.MTime, s.CTime, int64(s.Ino), int64(s.Mode)} {
		w.b = binary.AppendVarint(w.b, v)
	}
}

// folderReader reads what folderWriter wrote; its texts are parts of one string.
type folderReader struct {
	b   []byte
	s   string // ends where b does
	bad bool
}

func (r *folderReader) take(n int) string {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return ""
	}
	from := len(r.s) - len(r.b)
	r.b = r.b[n:]
	return r.s[from : from+n]
}

// number reads a count, or a length: nothing has more parts than bytes are left.
func (r *folderReader) number() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *folderReader) text() string { return r.take(r.number()) }

func (r *folderReader) texts() []string {
	n := r.number()
	if n == 0 {
		return nil
	}
	all := make([]string, n)
	for i := range all {
		all[i] = r.text()
	}
	return all
}

func (r *folderReader) stat() stamp.Stat {
	var v [5]int64
	for i := range v {
		x, n := binary.Varint(r.b)
		if n <= 0 {
			r.bad, r.b = true, nil
			return stamp.Stat{}
		}
		v[i], r.b = x, r.b[n:]
	}
	return stamp.Stat{Size: v[0], MTime: v[1], CTime: v[2], Ino: uint64(v[3]), Mode: uint32(v[4])}
}
