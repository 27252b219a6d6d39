package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
)

// Machine is what a checkpoint is checked against. A nil function means that
// nothing can be said, and is no reason to refuse.
type Machine struct {
	Arch        string
	CPU         []string                               // features
	Fingerprint digest.Digest                          // see image.Fingerprint
	HasRuntime  func(driver string, r id.Runtime) bool // whether that program is here or can be had
	HasBase     func(Base) bool                        // whether that base is here, unchanged
	// Stat returns size and modification time in nanoseconds of a file of the
	// Host base, by its path in the sandbox.
	Stat func(b Base, path string) (size, mtimeNs int64, err error)
}

// Check refuses a restore that cannot work: cheap enough for every restore.
// FailedPrecondition says what is missing and what would work, DataLoss that
// the checkpoint itself is not whole.
func (c Checkpoint) Check(m Machine) error {
	for _, f := range c.Manifest.Files {
		st, err := os.Lstat(filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
		if errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.DataLoss, "checkpoint %s is damaged: its file %s is missing: delete it and make it again", c.Name, f.Path)
		}
		if err != nil {
			return errs.New(errs.Internal, "checkpoint %s: %w", c.Name, err)
		}
		if !st.Mode().IsRegular() || st.Size() != f.Size {
			return errs.New(errs.DataLoss, "checkpoint %s is damaged: its file %s has %d bytes and should have %d: delete it and make it again",
				c.Name, f.Path, st.Size(), f.Size)
		}
		if f.Size <= readAlways {
			if err := c.same(f); err != nil {
				return err
			}
		}
	}
	if err := c.Manifest.Fits(m); err != nil {
		return errs.New(errs.CodeOf(err), "checkpoint %s cannot be restored here: %w", c.Name, err)
	}
	return nil
}

// readAlways is the size of the files that are read before each restore, some
// tenths of a millisecond for all; the memory would take longer than the restore.
const readAlways = 1 << 20

// same reads a file and compares it with what was made.
func (c Checkpoint) same(f File) error {
	file, err := os.Open(filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
	if err != nil {
		return errs.New(errs.Internal, "checkpoint %s: %w", c.Name, err)
	}
	defer file.Close()
	sum, _, err := digest.Read(file)
	if err != nil {
		return errs.New(errs.Internal, "checkpoint %s: %w", c.Name, err)
	}
	if sum != f.SHA256 {
		return errs.New(errs.DataLoss, "checkpoint %s is damaged: its file %s is not what was saved: delete it and make it again", c.Name, f.Path)
	}
	return nil
}

// Fits is the part of Check that needs no files: whether a checkpoint that is
// elsewhere could be restored on m.
func (m *Manifest) Fits(on Machine) error {
	refuse := func(format string, args ...any) error { return errs.New(errs.FailedPrecondition, format, args...) }
	if on.Arch != "" && on.Arch != m.Needs.Arch {
		return refuse("it was made on %s and this machine is %s: use a machine of the same kind", m.Needs.Arch, on.Arch)
	}
	if len(on.CPU) > 0 {
		if lacking := missing(m.Needs.CPU, on.CPU); len(lacking) > 0 {
			return refuse("this machine's processor lacks %v: use a machine with a processor like the one it was made on", clip(lacking))
		}
	}
	if m.Base.Kind == Host && on.Fingerprint != "" && on.Fingerprint != m.Base.Machine {
		return refuse("it was made from this machine's root; use an image: it needs the root of the machine it was made on, and a checkpoint of an image goes everywhere")
	}
	if on.HasRuntime != nil && !on.HasRuntime(m.Driver, m.Runtime) {
		return refuse("it needs the %s runtime %.12s, which is not here: copy it from a machine that has it, or make the checkpoint again", m.Driver, m.Runtime)
	}
	if on.HasBase != nil && !on.HasBase(m.Base) {
		if m.Base.Kind == Host {
			return refuse("this machine's root or its mounts changed since it was made: make the checkpoint again")
		}
		return refuse("its image %s is not here: import the same image again, or copy it from a machine that has it", m.Base.Digest.Short())
	}
	return m.Base.unchanged(on)
}

// unchanged compares the files of a host's root that the processes map.
func (b *Base) unchanged(on Machine) error {
	if on.Stat == nil {
		return nil
	}
	for _, o := range b.Open {
		size, mtime, err := on.Stat(*b, o.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.FailedPrecondition, "/%s was open when it was made and is gone: make the checkpoint again", o.Path)
		}
		if err != nil {
			return errs.New(errs.FailedPrecondition, "/%s: %w", o.Path, err)
		}
		if size != o.Size || mtime != o.MtimeNs {
			return errs.New(errs.FailedPrecondition, "/%s was open when it was made and has changed since: make the checkpoint again", o.Path)
		}
	}
	return nil
}

// missing returns what of need is not in have.
func missing(need, have []string) []string {
	here := make(map[string]bool, len(have))
	for _, f := range have {
		here[f] = true
	}
	var lacking []string
	for _, f := range need {
		if !here[f] {
			lacking = append(lacking, f)
		}
	}
	return lacking
}

// clip keeps messages short.
func clip(list []string) []string {
	if len(list) > 8 {
		return append(slices.Clone(list[:8]), "…")
	}
	return list
}

// Verify hashes a checkpoint's files again and compares them with its
// manifest, chunk by chunk. DataLoss names the first file that differs. read,
// when not nil, counts the bytes: in the end each was read twice.
func (s *Store) Verify(ctx context.Context, name id.Name, read *atomic.Int64) error {
	c, err := s.Get(name)
	if err != nil {
		return err
	}
	err = s.verify(ctx, c, read)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if now, e := s.Get(name); e != nil || now.Digest != c.Digest {
		return errs.New(errs.FailedPrecondition, "checkpoint %s was removed, renamed or replaced while it was read: try again", name)
	}
	return err
}

func (s *Store) verify(ctx context.Context, c Checkpoint, read *atomic.Int64) error {
	m, sum, err := readManifest(filepath.Join(filepath.Dir(c.Dir), manifestName))
	if err == nil && sum != c.Digest {
		err = errs.New(errs.DataLoss, "file %s is not the one it was made with", manifestName)
	}
	if err != nil {
		return errs.New(errs.CodeOf(err), "checkpoint %s is damaged: %w", c.Name, err)
	}
	results := life.Each(ctx, 2*len(m.Files), runtime.GOMAXPROCS(0), func(ctx context.Context, i int) error {
		f := m.Files[i/2]
		path := filepath.Join(c.Dir, filepath.FromSlash(f.Path))
		if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
			return errs.New(errs.DataLoss, "%s is no regular file", f.Path) // which Check refuses too
		}
		return withFile(ctx, path, func(_ *os.File, r io.Reader) error {
			if read != nil {
				r = &counter{r: r, n: read}
			}
			if i%2 == 1 {
				return sameChunks(r, f)
			}
			sum, size, err := digest.Read(r)
			if err == nil && (sum != f.SHA256 || size != f.Size) {
				err = errs.New(errs.DataLoss, "file %s differs from the manifest", f.Path)
			}
			return err
		})
	})
	for _, err := range results {
		if errors.Is(err, fs.ErrNotExist) {
			err = errs.New(errs.DataLoss, "%w", err)
		}
		if err != nil {
			return errs.New(errs.CodeOf(err), "checkpoint %s is damaged: %w", c.Name, err)
		}
	}
	return nil
}

// counter adds up what is read through it.
type counter struct {
	r io.Reader
	n *atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func sameChunks(r io.Reader, f File) error {
	for i, want := range f.Chunks {
		got, n, err := digest.Read(io.LimitReader(r, want.Size))
		if err != nil {
			return err
		}
		if n != want.Size || got != want.SHA256 {
			return errs.New(errs.DataLoss, "chunk %d of file %s differs from the manifest", i, f.Path)
		}
	}
	return nil
}
