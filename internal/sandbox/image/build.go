package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/home"
	"brood/internal/sandbox/image/erofs"
)

// source is something that is made into an EROFS image.
type source interface {
	// fingerprint changes when the source does. It also returns an estimate
	// of the bytes to read, and whether a later change would surely show.
	fingerprint(ctx context.Context) (fp digest.Digest, size int64, settled bool, err error)
	// fill writes the source's files and returns its tree.
	fill(ctx context.Context, w *erofs.Writer, n *notes) (*erofs.Node, error)
}

// imported remembers what a source became.
type imported struct {
	Fingerprint digest.Digest `json:"fingerprint"`
	Guest       digest.Digest `json:"guest"`
	Image       digest.Digest `json:"image"`
}

var importedSchema = home.Schema{Kind: "image source", Format: 1}

// resolveSource imports a folder or tar, or finds that it did so before.
func (s *Store) resolveSource(ctx context.Context, r reference, opts Options) (Image, error) {
	ref := string(r.kind) + ":" + r.path
	release, err := s.alone(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	defer release()
	var src source = &tarball{path: r.path, progress: opts.Progress}
	if r.kind == Folder {
		src = &folder{path: r.path, home: s.home.Dir(), progress: opts.Progress}
	}
	fp, size, settled, err := src.fingerprint(ctx)
	if err != nil {
		return Image{}, err
	}
	note := filepath.Join(s.dir, sourcesName, string(digest.Of([]byte(ref)))+".json")
	var known imported
	if err := importedSchema.Read(note, &known); err == nil && known.Fingerprint == fp && known.Guest == s.guest.Digest {
		if img, err := s.Get(known.Image); err == nil {
			img.Ref = ref
			return img, nil
		}
	}
	if err := home.Room(s.dir, uint64(size), 1); err != nil {
		return Image{}, fmt.Errorf("import %s: %w", ref, err)
	}
	img, err := s.build(ctx, r.kind, ref, src)
	if err != nil {
		return Image{}, home.DiskError(err, "import %s", ref)
	}
	after, _, _, err := src.fingerprint(ctx)
	if err != nil || after != fp {
		img.Notes = append(img.Notes, "the source changed while it was read: the image may hold a mixture")
		return img, nil
	}
	if settled {
		err = importedSchema.Write(note, imported{Fingerprint: fp, Guest: s.guest.Digest, Image: img.Root.Digest}, home.Volatile)
	}
	return img, home.DiskError(err, "import %s", ref)
}

// build makes the EROFS image beside and publishes it. After an error nothing
// is left.
func (s *Store) build(ctx context.Context, kind Kind, ref string, src source) (img Image, err error) {
	tmp := s.hidden("new")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return Image{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	at("build:begun")
	var n notes
	sum, size, err := s.write(ctx, filepath.Join(tmp, erofsName), src, &n)
	if err != nil {
		return Image{}, err
	}
	at("build:written")
	r := record{Ref: ref, Kind: kind, Digest: sum, Size: size, Created: time.Now().UTC(), Notes: n.list()}
	if err := recordSchema.Write(filepath.Join(tmp, recordName), r, home.Durable); err != nil {
		return Image{}, err
	}
	at("build:recorded")
	let, err := s.keep(ctx, sum)
	if err != nil {
		return Image{}, err
	}
	defer let()
	if err := s.publish(tmp, string(sum)); err != nil {
		return Image{}, err
	}
	at("build:published")
	if img, err = s.load(string(sum)); err != nil {
		return Image{}, err
	}
	img.Ref = ref
	return img, nil
}

// write writes the image file and returns its digest and size.
func (s *Store) write(ctx context.Context, path string, src source, n *notes) (sum digest.Digest, size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := erofs.NewWriter(f, nil)
	root, err := src.fill(ctx, w, n)
	if err != nil {
		return "", 0, err
	}
	if err := s.furnish(root, w, n); err != nil {
		return "", 0, err
	}
	if err := w.Finish(root); err != nil {
		return "", 0, err
	}
	if err := f.Sync(); err != nil {
		return "", 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	return digest.Read(&ctxReader{ctx: ctx, r: f})
}

// points are the folders that a sandbox mounts something on.
var points = []struct {
	path []string
	mode uint16
}{
	{[]string{"proc"}, 0o555}, {[]string{"sys"}, 0o555}, {[]string{"dev"}, 0o755}, {[]string{"dev", "shm"}, 0o1777},
	{[]string{"tmp"}, 0o1777}, {[]string{"run"}, 0o755}, {[]string{".brood", "bin"}, 0o755},
}

// furnish adds the guest program and the mount points.
func (s *Store) furnish(root *erofs.Node, w *erofs.Writer, n *notes) error {
	var bin *erofs.Node
	for _, p := range points {
		bin = root
		for i, name := range p.path {
			next := bin.Child(name)
			if next == nil || next.Type != erofs.Dir {
				if next != nil {
					n.add("/%s is a folder in the image: a sandbox mounts something there", filepath.Join(p.path[:i+1]...))
				}
				mode := uint16(0o755)
				if i == len(p.path)-1 {
					mode = p.mode
				}
				next = erofs.NewDir(mode)
				if err := bin.Add(name, next); err != nil {
					return err
				}
			}
			bin = next
		}
	}
	guest, err := w.NewFile(0o755, bytes.NewReader(s.guest.Bytes))
	if err != nil {
		return err
	}
	return bin.Add(filepath.Base(GuestPath), guest)
}

// notes collects what was left out, a bounded number with a count of the rest.
type notes struct {
	lines []string
	more  int
}

const maxNotes = 20

func (n *notes) add(format string, args ...any) {
	if len(n.lines) == maxNotes {
		n.more++
		return
	}
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) list() []string {
	if n.more == 0 {
		return n.lines
	}
	return append(n.lines, fmt.Sprintf("and %d more", n.more))
}

// ctxReader ends a long read with its context.
type ctxReader struct {
	ctx context.Context // of the one call that this reader lives for
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// teller passes progress on, not more often than every MiB.
type teller struct {
	tell        func(done, total int64)
	done, total int64
	told        int64
}

func (t *teller) add(n int) {
	t.done += int64(n)
	if t.tell != nil && (t.done-t.told >= 1<<20 || t.done == t.total) {
		t.told = t.done
		t.tell(t.done, max(t.total, t.done))
	}
}

// invalid is an error of the source itself.
func invalid(format string, args ...any) error {
	return errs.New(errs.InvalidArgument, format, args...)
}
