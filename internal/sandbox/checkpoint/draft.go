package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/sandbox"
)

// Options say how a new checkpoint comes into the store.
type Options struct {
	Replace   bool     // swap an existing one of that name
	Temporary id.Batch // the batch it goes with
	Copy      bool     // made elsewhere
	Source    string   // the sandbox it is taken of
}

// Facts are what the manifest says beyond the files.
type Facts struct {
	Driver     string
	Runtime    id.Runtime
	Capture    Capture
	Needs      Needs
	Shape      sandbox.Shape
	Base       Base
	Parent     digest.Digest
	MemoryUsed uint64
	// Guest is what a fork's guest program needs to go on, opaque to the
	// store; it is written to GuestFile when not empty.
	Guest []byte
	// Cuts names the files whose pages keep their place; all others are cut
	// by content.
	Cuts map[string]Cut
	// Check, when not nil, looks whether the files are whole, as far as the
	// driver can tell. An error refuses the capture.
	Check func(dir string) error
}

// Draft is a checkpoint that is being written. It ends with Publish or
// Discard; a Discard after Publish does nothing, so it may be deferred.
type Draft struct {
	store *Store
	name  id.Name
	opts  Options
	dir   string // the draft's own folder

	mu    sync.Mutex // guards ended
	ended bool
}

// Begin reserves name and makes an empty folder for a driver's files.
// AlreadyExists says whether the name is taken or being captured.
func (s *Store) Begin(name id.Name, opts Options) (*Draft, error) {
	if _, err := id.ParseName("checkpoint", string(name)); err != nil {
		return nil, err
	}
	existing, err := s.reserve(name, capturing)
	if err != nil {
		return nil, err
	}
	d := &Draft{store: s, name: name, opts: opts, dir: filepath.Join(s.dir, draftPrefix+"draft-"+id.Random(8))}
	if err := mayBegin(existing, opts); err != nil {
		s.release(name, nil, false)
		return nil, err
	}
	if err := os.MkdirAll(d.Dir(), 0o700); err != nil {
		s.release(name, nil, false)
		return nil, home.DiskError(err, "checkpoint %s", name)
	}
	at("begin:made")
	return d, nil
}

func mayBegin(existing *entry, opts Options) error {
	if existing == nil {
		return nil
	}
	if existing.err != nil && !opts.Replace {
		return existing.refusal()
	}
	if !opts.Replace {
		return errs.New(errs.AlreadyExists, "there is a checkpoint %s already: replace it or use another name", existing.Name)
	}
	if existing.err == nil && existing.Record.Pinned {
		return errs.New(errs.FailedPrecondition, "checkpoint %s is pinned and cannot be replaced: unpin it first", existing.Name)
	}
	return nil
}

// Dir is the folder for the driver's files.
func (d *Draft) Dir() string { return filepath.Join(d.dir, filesName) }

// end says whether the caller is the one that ends the draft.
func (d *Draft) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.ended
	d.ended = true
	return first
}

// Discard removes the draft and frees its name.
func (d *Draft) Discard() error {
	if !d.end() {
		return nil
	}
	err := os.RemoveAll(d.dir)
	d.store.release(d.name, nil, false)
	return err
}

// Publish checks, hashes and syncs the files, writes the manifest and renames
// the folder to its name. After an error nothing of the draft is left and
// what was there before is unchanged; InsufficientDisk when the disk filled
// up, DataLoss when the files are not whole.
func (d *Draft) Publish(ctx context.Context, f Facts) (Checkpoint, error) {
	if !d.end() {
		return Checkpoint{}, errs.New(errs.FailedPrecondition, "the draft of checkpoint %s has ended", d.name)
	}
	e, err := d.publish(ctx, f)
	if err == nil {
		err = d.place()
	}
	if err != nil {
		err = errors.Join(home.DiskError(err, "checkpoint %s", d.name), os.RemoveAll(d.dir))
		d.store.release(d.name, nil, false)
		return Checkpoint{}, err
	}
	d.store.release(d.name, e, false)
	// It stands. What only makes that outlive a power loss, and what removes
	// a replaced one, is tried; the next Open removes the rest.
	if e.Record.Boot != "" {
		_ = os.RemoveAll(d.dir)
		return e.Checkpoint, nil
	}
	if err := home.SyncDir(d.store.dir); err != nil {
		return e.Checkpoint, errs.New(errs.Internal, "checkpoint %s is made, but the disk does not confirm it: %w", d.name, err)
	}
	at("publish:synced")
	_ = os.RemoveAll(d.dir)
	return e.Checkpoint, nil
}

func (d *Draft) publish(ctx context.Context, f Facts) (*entry, error) {
	if len(f.Guest) > 0 {
		if err := writeNew(filepath.Join(d.Dir(), guestName), f.Guest); err != nil {
			return nil, err
		}
	}
	if err := d.whole(f); err != nil {
		return nil, err
	}
	at("publish:checked")
	// What goes with a batch does not outlive the machine's memory anyway.
	durable := d.opts.Temporary == "" || bootID() == ""
	files, err := hashFiles(ctx, d.Dir(), f.Cuts, durable)
	if err != nil {
		return nil, err
	}
	at("publish:hashed")
	m := Manifest{
		Format: Format, Driver: f.Driver, Runtime: f.Runtime, Capture: f.Capture, Needs: f.Needs, Shape: f.Shape,
		Base: f.Base, Parent: f.Parent, MemoryUsed: f.MemoryUsed, Files: files,
	}
	m.Needs.CPU = slices.Compact(slices.Sorted(slices.Values(f.Needs.CPU)))
	m.Base.Open = slices.SortedFunc(slices.Values(f.Base.Open), func(a, b Stamp) int { return cmp.Compare(a.Path, b.Path) })
	b, sum, err := m.Encode()
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	e := &entry{Checkpoint: Checkpoint{
		Name: d.name, Digest: sum, Dir: filepath.Join(d.store.dir, string(d.name), filesName), Manifest: withoutChunks(&m),
		Record: Record{Created: now, Used: now, Temporary: d.opts.Temporary, Copy: d.opts.Copy, Source: d.opts.Source},
	}}
	if !durable {
		e.Record.Boot = bootID()
	}
	if err := recordSchema.Write(filepath.Join(d.dir, recordName), e.Record, home.Volatile); err != nil {
		return nil, err
	}
	at("publish:record")
	if err := writeNew(filepath.Join(d.dir, manifestName), b); err != nil {
		return nil, err
	}
	at("publish:manifest")
	if durable {
		if err := syncRest(d.dir); err != nil {
			return nil, err
		}
	}
	return e, ctx.Err()
}

// place renames the draft to its name. With Replace the two folders swap, and
// the draft's name, which Open removes, then holds the old one.
func (d *Draft) place() error {
	final := filepath.Join(d.store.dir, string(d.name))
	move := renameNew
	if _, err := os.Lstat(final); err == nil && d.opts.Replace {
		move = swap
	}
	if err := move(d.dir, final); err != nil {
		return err
	}
	at("publish:renamed")
	return nil
}

// whole looks for files that a driver did not finish: it may end with success
// though the disk was full.
func (d *Draft) whole(f Facts) error {
	paths, err := listFiles(d.Dir())
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return errs.New(errs.DataLoss, "the capture has no files")
	}
	for _, p := range paths {
		st, err := os.Stat(filepath.Join(d.Dir(), filepath.FromSlash(p)))
		if err != nil {
			return err
		}
		if st.Size() == 0 {
			return d.suspect(errs.New(errs.DataLoss, "file %s of the capture is empty", p))
		}
	}
	if f.Check != nil {
		if err := f.Check(d.Dir()); err != nil {
			return d.suspect(err)
		}
	}
	return nil
}

// suspect blames a broken capture on the disk when that is full.
func (d *Draft) suspect(err error) error {
	if full := home.Room(d.store.dir, 0, 1<<20); full != nil {
		return errs.New(errs.InsufficientDisk, "the disk filled up during the capture: free some space (%w)", err)
	}
	return err
}

// listFiles returns the regular files below dir, sorted, with slashes.
// Anything else but folders is refused: it has no content to save.
func listFiles(dir string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !e.Type().IsRegular() {
			return errs.New(errs.Internal, "the capture holds %s, which is no regular file", rel)
		}
		paths = append(paths, rel)
		return checkPath(rel)
	})
	slices.Sort(paths)
	return paths, err
}

// syncRest makes durable what is beside the files, and all names.
func syncRest(dir string) error {
	paths, err := foldersIn(dir)
	if err != nil {
		return err
	}
	return syncAll(append(paths, filepath.Join(dir, recordName), filepath.Join(dir, manifestName))...)
}

// writeNew writes a file of mode 0600.
func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
