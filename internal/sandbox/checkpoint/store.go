package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// draftPrefix begins the names of folders that are no checkpoints: drafts,
// and what is being deleted. No name of a checkpoint begins with a dot.
const draftPrefix = "."

// Store holds the checkpoints of one home.
type Store struct {
	dir string

	mu      sync.Mutex            // guards the maps; never held over I/O
	calm    *sync.Cond            // on mu: told when a record was changed
	entries map[id.Name]*entry    // what is on disk; the values are not changed
	busy    map[id.Name]busyState // names that are being written or removed
}

// entry is a checkpoint, or why it cannot be read.
type entry struct {
	Checkpoint
	err error
}

// busyState says what keeps a name, for the message to the second one.
type busyState string

const (
	capturing busyState = "being captured"
	deleting  busyState = "being deleted"
	renaming  busyState = "being renamed"
	changing  busyState = "being changed" // its record, which takes no time: the next one waits
)

// Open reads the store of a home and removes what killed processes left. A
// checkpoint that cannot be read stays where it is: Get says why, Delete
// removes it.
func Open(h *home.Home) (*Store, error) {
	s := &Store{dir: h.Checkpoints(), entries: map[id.Name]*entry{}, busy: map[id.Name]busyState{}}
	s.calm = sync.NewCond(&s.mu)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "checkpoints: %w", err)
	}
	debris := func(name string) bool { return strings.HasPrefix(name, draftPrefix) }
	if err := home.RemoveDebris(s.dir, debris); err != nil {
		return nil, errs.New(errs.FailedPrecondition, "checkpoints: remove what was left half made: %w", err)
	}
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, errs.New(errs.FailedPrecondition, "checkpoints: %w", err)
	}
	for _, e := range list {
		name, err := id.ParseName("checkpoint", e.Name())
		if err != nil || !e.IsDir() {
			continue // not ours
		}
		s.entries[name] = s.load(name)
		if err := s.recheck(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// recheck looks at a checkpoint that was not synced before the machine went
// down: whole, it is made durable; else it is removed, as never published.
func (s *Store) recheck(name id.Name) error {
	e := s.entries[name]
	if e.err != nil || e.Record.Boot == "" || e.Record.Boot == bootID() {
		return nil //nolint:nilerr // a damaged one is listed as such
	}
	if err := s.Verify(context.Background(), name, nil); err != nil {
		if e.Record.Pinned {
			e.err = err // who wanted it kept is told
			return nil
		}
		return s.Delete(name)
	}
	return s.settle(name, func(*Record) {})
}

// settle makes a checkpoint durable that was not, and changes its record.
func (s *Store) settle(name id.Name, change func(*Record)) error {
	c, err := s.Get(name)
	if err != nil {
		return err
	}
	if c.Record.Boot != "" {
		var paths []string
		for _, f := range c.Manifest.Files {
			paths = append(paths, filepath.Join(c.Dir, filepath.FromSlash(f.Path)))
		}
		dir := filepath.Dir(c.Dir)
		if err := errors.Join(syncAll(paths...), syncRest(dir), home.SyncDir(s.dir)); err != nil {
			return home.DiskError(err, "checkpoint %s", name)
		}
	}
	return s.amend(name, home.Durable, func(r *Record) {
		r.Boot = ""
		change(r)
	})
}

// load reads one checkpoint from disk.
func (s *Store) load(name id.Name) *entry {
	e := &entry{Checkpoint: Checkpoint{Name: name, Dir: filepath.Join(s.dir, string(name), filesName)}}
	m, d, err := readManifest(filepath.Join(s.dir, string(name), manifestName))
	// The record tells of a damaged one too when and for whom it was made.
	unknown := recordSchema.Read(filepath.Join(s.dir, string(name), recordName), &e.Record)
	if err == nil {
		e.Manifest, e.Digest = withoutChunks(m), d
		err = unknown
	}
	if e.Digest != "" && (errs.Is(err, errs.NotFound) || errs.Is(err, errs.DataLoss)) {
		// Nothing of what it is was lost, only whether it may go.
		e.Record, err = s.recordAnew(name), nil
	}
	e.err = err
	return e
}

// recordAnew is the record of a checkpoint whose own is lost: pinned, for it
// may have been.
func (s *Store) recordAnew(name id.Name) Record {
	r := Record{Created: time.Now(), Pinned: true}
	dir := filepath.Join(s.dir, string(name))
	if st, err := os.Stat(filepath.Join(dir, manifestName)); err == nil {
		r.Created = st.ModTime()
	}
	r.Used = r.Created
	_ = recordSchema.Write(filepath.Join(dir, recordName), r, home.Volatile) // else it is made anew again
	return r
}

func readManifest(path string) (*Manifest, digest.Digest, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", errs.New(errs.DataLoss, "it has no manifest: %w", err)
	}
	if err == nil && st.Size() > maxManifest {
		return nil, "", errs.New(errs.DataLoss, "a manifest of %d bytes is larger than %d", st.Size(), maxManifest)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, "", errs.New(errs.Internal, "manifest: %w", err)
	}
	return DecodeManifest(b)
}

func withoutChunks(m *Manifest) Manifest {
	lean := *m
	lean.Files = slices.Clone(m.Files)
	for i := range lean.Files {
		lean.Files[i].Chunks = nil
	}
	return lean
}

// Get returns the checkpoint called name.
func (s *Store) Get(name id.Name) (Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[name]
	if !ok {
		return Checkpoint{}, errs.New(errs.NotFound, "there is no checkpoint %s", name)
	}
	return e.Checkpoint, e.refusal()
}

// Lookup returns the checkpoint that ref names: its name, or its digest, or
// at least the first eight digits of it, with or without "sha256:".
func (s *Store) Lookup(ref string) (Checkpoint, error) {
	if name, err := id.ParseName("checkpoint", ref); err == nil {
		if c, err := s.Get(name); !errs.Is(err, errs.NotFound) {
			return c, err
		}
	}
	start := strings.TrimPrefix(ref, "sha256:")
	var found []Checkpoint
	for _, c := range s.List() {
		if len(start) >= 8 && strings.HasPrefix(string(c.Digest), start) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return Checkpoint{}, errs.New(errs.NotFound, "there is no checkpoint %.80q", ref)
	}
	if slices.ContainsFunc(found, func(c Checkpoint) bool { return c.Digest != found[0].Digest }) {
		return Checkpoint{}, errs.New(errs.InvalidArgument, "%.80q is the beginning of several digests: write more of it", ref)
	}
	return found[0], nil
}

// ByDigest returns a checkpoint with that digest; of several, the first by
// name.
func (s *Store) ByDigest(d digest.Digest) (Checkpoint, error) {
	for _, c := range s.List() {
		if c.Digest == d {
			return c, nil
		}
	}
	return Checkpoint{}, errs.New(errs.NotFound, "there is no checkpoint with digest %s", d.Short())
}

// List returns the checkpoints that can be read, by name.
func (s *Store) List() []Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Checkpoint, 0, len(s.entries))
	for _, e := range s.entries {
		if e.err == nil {
			all = append(all, e.Checkpoint)
		}
	}
	slices.SortFunc(all, func(a, b Checkpoint) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Children returns the names of the checkpoints whose parent is d.
func (s *Store) Children(d digest.Digest) []id.Name {
	var names []id.Name
	for _, c := range s.List() {
		if c.Manifest.Parent == d {
			names = append(names, c.Name)
		}
	}
	return names
}

// Manifest reads a checkpoint's whole manifest, chunks included.
func (s *Store) Manifest(name id.Name) (*Manifest, error) {
	if _, err := s.Get(name); err != nil {
		return nil, err
	}
	m, _, err := readManifest(filepath.Join(s.dir, string(name), manifestName))
	if err != nil {
		return nil, errs.New(errs.CodeOf(err), "checkpoint %s: %w", name, err)
	}
	return m, nil
}

// reserve takes a name for one operation. existing is what has it now, nil
// when nothing has.
func (s *Store) reserve(name id.Name, why busyState) (existing *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy[name] == changing {
		s.calm.Wait()
	}
	if state, taken := s.busy[name]; taken {
		return nil, errs.New(errs.AlreadyExists, "checkpoint %s is %s: wait for it or use another name", name, state)
	}
	s.busy[name] = why
	return s.entries[name], nil
}

// release ends an operation; e, when not nil, is what the name now has.
func (s *Store) release(name id.Name, e *entry, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, name)
	s.calm.Broadcast()
	if gone {
		delete(s.entries, name)
	}
	if e != nil {
		s.entries[name] = e
	}
}

// Delete removes a checkpoint. A pinned one is refused.
func (s *Store) Delete(name id.Name) error {
	e, err := s.reserve(name, deleting)
	if err != nil {
		return err
	}
	if e == nil {
		s.release(name, nil, false)
		return errs.New(errs.NotFound, "there is no checkpoint %s", name)
	}
	if e.err == nil && e.Record.Pinned { // a damaged one cannot be unpinned
		s.release(name, nil, false)
		return errs.New(errs.FailedPrecondition, "checkpoint %s is pinned: unpin it first", name)
	}
	at("delete:begun")
	aside := filepath.Join(s.dir, draftPrefix+"gone-"+id.Random(8))
	if err := os.Rename(filepath.Join(s.dir, string(name)), aside); err != nil {
		s.release(name, nil, false)
		return errs.New(errs.Internal, "delete checkpoint %s: %w", name, err)
	}
	at("delete:renamed")
	s.release(name, nil, true)
	if err := errors.Join(home.SyncDir(s.dir), os.RemoveAll(aside)); err != nil {
		return errs.New(errs.Internal, "delete checkpoint %s: %w", name, err)
	}
	return nil
}

// Rename gives a checkpoint another name, which must be free.
func (s *Store) Rename(from, to id.Name) error {
	if from == to {
		return errs.New(errs.InvalidArgument, "checkpoint %s has that name already", from)
	}
	e, err := s.reserve(from, renaming)
	if err != nil {
		return err
	}
	other, err := s.reserve(to, renaming)
	if err != nil {
		s.release(from, nil, false)
		return err
	}
	err = s.rename(e, other, from, to)
	if err != nil {
		s.release(from, nil, false)
		s.release(to, nil, false)
		return err
	}
	moved := *e
	moved.Name, moved.Dir = to, filepath.Join(s.dir, string(to), filesName)
	s.release(to, &moved, false)
	s.release(from, nil, true)
	return nil
}

func (s *Store) rename(e, other *entry, from, to id.Name) error {
	if e == nil {
		return errs.New(errs.NotFound, "there is no checkpoint %s", from)
	}
	if e.err != nil {
		return e.refusal()
	}
	if other != nil {
		return errs.New(errs.AlreadyExists, "there is a checkpoint %s already", to)
	}
	at("rename:begun")
	if err := renameNew(filepath.Join(s.dir, string(from)), filepath.Join(s.dir, string(to))); err != nil {
		return errs.New(errs.Internal, "rename checkpoint %s to %s: %w", from, to, err)
	}
	at("rename:renamed")
	return home.SyncDir(s.dir)
}

// Pin keeps a checkpoint from being deleted.
func (s *Store) Pin(name id.Name) error {
	return s.amend(name, home.Durable, func(r *Record) { r.Pinned = true })
}

// Unpin takes a pin away.
func (s *Store) Unpin(name id.Name) error {
	return s.amend(name, home.Durable, func(r *Record) { r.Pinned = false })
}

// Touch notes that a checkpoint was used. It is not worth waiting for: while
// the checkpoint is being replaced, renamed or deleted, nothing is noted.
func (s *Store) Touch(name id.Name, used time.Time) error {
	err := s.amend(name, home.Volatile, func(r *Record) {
		if used.After(r.Used) {
			r.Used = used
		}
	})
	if errs.Is(err, errs.AlreadyExists) {
		return nil
	}
	return err
}

// Adopt takes the mark of a batch away: the checkpoint no longer goes with it.
func (s *Store) Adopt(name id.Name) error {
	return s.settle(name, func(r *Record) { r.Temporary = "" })
}

// amend changes a record on disk and in memory.
func (s *Store) amend(name id.Name, d home.Durability, change func(*Record)) error {
	e, err := s.reserve(name, changing)
	if err != nil {
		return err
	}
	if e == nil || e.err != nil {
		s.release(name, nil, false)
		_, err := s.Get(name)
		return err
	}
	changed := *e
	change(&changed.Record)
	if err := recordSchema.Write(filepath.Join(s.dir, string(name), recordName), changed.Record, d); err != nil {
		s.release(name, nil, false)
		return home.DiskError(err, "record of checkpoint %s", name)
	}
	s.release(name, &changed, false)
	return nil
}
