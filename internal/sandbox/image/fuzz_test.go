//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"os"
	"testing"

	"brood/internal/base/errs"
	"brood/internal/sandbox/image/erofs"
)

// FuzzTar: whatever a tar says, reading it ends with an image or a refusal.
func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, file("a", "x"), link(tar.TypeSymlink, "l", "."), file("l/b", "y"), link(tar.TypeLink, "h", "a")))
	f.Add(tarOf(f, link(tar.TypeSymlink, "l", "l"), file("l/x", "y")))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 4})
	f.Add([]byte("BZh91AY&SY"))
	f.Fuzz(func(t *testing.T, b []byte) {
		plain, done, err := unpacked(bytes.NewReader(b))
		if err != nil {
			return
		}
		defer done()
		out := &memory{}
		w := erofs.NewWriter(out, nil)
		tr := newTree(w, &notes{})
		if err := tr.readAll(&bounded{r: plain, left: 1 << 20}); err != nil {
			return
		}
		if err := w.Finish(tr.root); err != nil {
			t.Fatalf("a tree that was read cannot be written: %v", err)
		}
	})
}

// bounded ends packed input that unpacks to very much.
type bounded struct {
	r interface{ Read([]byte) (int, error) }

	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errs.New(errs.ResourceExhausted, "enough")
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// memory is an image file in memory.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func (m *memory) Truncate(size int64) error {
	if int(size) > len(m.b) {
		m.b = append(m.b, make([]byte, int(size)-len(m.b))...)
	}
	m.b = m.b[:size]
	return nil
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"", "host", "dir:/x", "tar:x", "sha256:", "ubuntu", "./x", "/x.tar", "oci:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseRef(s)
		if err == nil && r.path == "" && r.digest == "" && r.kind != Host {
			t.Fatalf("%q means nothing", s)
		}
		if err == nil && r.path != "" && !os.IsPathSeparator(r.path[0]) {
			t.Fatalf("%q gave the relative path %q", s, r.path)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"kind":"host","digest":"x","binds":[{"source":"/usr","target":"/usr"}]}`))
	f.Add([]byte(`{"format":1,"size":-1}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var r record
		_ = recordSchema.Decode("x", b, &r)
		var i imported
		_ = importedSchema.Decode("x", b, &i)
	})
}
