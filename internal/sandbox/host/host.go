package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/guest"
	"brood/internal/sandbox/image"
)

// Params say what a Host works with. Zero values of the limits mean their
// defaults.
type Params struct {
	Home        *home.Home
	Driver      sandbox.Driver
	Images      *image.Store
	Checkpoints *checkpoint.Store
	Log         *slog.Logger
	Machine     checkpoint.Machine     // what checkpoints are checked against
	Needs       checkpoint.Needs       // what a checkpoint made here needs of a machine
	CheckFiles  func(dir string) error // whether a driver's capture is whole; nil: not known

	IdentityTimeout time.Duration // until a fork must have confirmed itself; 10 s
	MaxStarting     int           // sandboxes starting at once; required
	MaxSandboxes    int           // 0: no limit
	MinFree         uint64        // bytes of disk a checkpoint must leave; 0: the default floor
}

// DefaultIdentityTimeout is how long a fork may take to confirm its identity
// (F31).
const DefaultIdentityTimeout = 10 * time.Second

// Host is the sandboxes of one machine.
type Host struct {
	p        Params
	group    *life.Group
	starting chan struct{} // slots

	dropping sync.Mutex // held while unused checkpoints go: one at a time

	mu      sync.Mutex // guards names and what is in it; never held over I/O
	names   map[id.Name]*entry
	foreign map[id.Sandbox]bool // records of a newer brood: left alone
	batches map[id.Batch]*held  // that work now
}

// entry is one sandbox in memory.
type entry struct {
	busy chan struct{} // a slot: one operation at a time

	mu    sync.Mutex // guards what follows; never held over I/O
	rec   record
	guest *guest.Client // nil when it does not answer
	used  time.Time     // last use by a caller, for the idle timeout
	users int           // uses that go on: streams of execs, copies, logs
	stop  context.CancelFunc
	stuck time.Time // when its removal failed; zero: it did not
	gone  bool      // removed: an operation that waited for busy finds it so
}

func newEntry(rec record) *entry {
	return &entry{busy: make(chan struct{}, 1), rec: rec, used: time.Now()}
}

// Open takes over the sandboxes of the home and starts looking after them. The
// Host runs until Close.
func Open(ctx context.Context, p Params) (*Host, error) {
	if p.IdentityTimeout == 0 {
		p.IdentityTimeout = DefaultIdentityTimeout
	}
	h := &Host{
		p: p, group: life.NewGroup(context.WithoutCancel(ctx)),
		starting: make(chan struct{}, max(1, p.MaxStarting)),
		names:    map[id.Name]*entry{}, foreign: map[id.Sandbox]bool{}, batches: map[id.Batch]*held{},
	}
	if err := h.adopt(ctx); err != nil {
		return nil, errors.Join(err, h.group.Stop())
	}
	h.group.Go("expire", h.expire)
	return h, nil
}

// Close lets go of the sandboxes: they run on.
func (h *Host) Close() error {
	err := h.group.Stop()
	h.mu.Lock()
	entries := make([]*entry, 0, len(h.names))
	for _, e := range h.names {
		entries = append(entries, e)
	}
	h.mu.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		g := e.guest
		e.guest = nil
		e.mu.Unlock()
		if g != nil {
			_ = g.Close()
		}
	}
	return err
}

// List returns every sandbox, by name.
func (h *Host) List() []Sandbox {
	h.mu.Lock()
	entries := make([]*entry, 0, len(h.names))
	for _, e := range h.names {
		entries = append(entries, e)
	}
	h.mu.Unlock()
	all := make([]Sandbox, len(entries))
	for i, e := range entries {
		all[i] = e.view()
	}
	slices.SortFunc(all, func(a, b Sandbox) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Get returns one sandbox.
func (h *Host) Get(name id.Name) (Sandbox, error) {
	e, err := h.entry(name)
	if err != nil {
		return Sandbox{}, err
	}
	return e.view(), nil
}

// Has reports which of names are taken.
func (h *Host) Has(names []id.Name) []id.Name {
	h.mu.Lock()
	defer h.mu.Unlock()
	var taken []id.Name
	for _, n := range names {
		if _, ok := h.names[n]; ok {
			taken = append(taken, n)
		}
	}
	return taken
}

// Guest returns the connection to the program inside a running sandbox, and
// counts as a use of it. The connection stays the Host's.
func (h *Host) Guest(name id.Name) (*guest.Client, Sandbox, error) {
	e, err := h.entry(name)
	if err != nil {
		return nil, Sandbox{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used = time.Now()
	sb := e.rec.Sandbox
	if sb.State != sandbox.Running || e.guest == nil {
		return nil, sb, errs.New(errs.FailedPrecondition, "sandbox %s is %s, not running%s", name, sb.State, because(sb.Reason))
	}
	return e.guest, sb, nil
}

// Attend says that somebody uses a sandbox until release is called: it is not
// idle meanwhile, however long that takes.
func (h *Host) Attend(name id.Name) (release func()) {
	e, err := h.entry(name)
	if err != nil {
		return func() {}
	}
	change := func(n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.users += n
		e.used = time.Now()
	}
	change(1)
	return func() { change(-1) }
}

// Logs returns the two segment files of a sandbox's output.
func (h *Host) Logs(name id.Name) ([2]string, Sandbox, error) {
	e, err := h.entry(name)
	if err != nil {
		return [2]string{}, Sandbox{}, err
	}
	sb := e.view()
	return h.files(sb.ID).logs(), sb, nil
}

// KeepAlive moves the end of a sandbox that has one to at least d from now.
func (h *Host) KeepAlive(name id.Name, d time.Duration) error {
	e, err := h.entry(name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.used = time.Now()
	if until := e.used.Add(d); !e.rec.ExpiresAt.IsZero() && until.After(e.rec.ExpiresAt) {
		e.rec.ExpiresAt = until
	}
	e.mu.Unlock()
	return h.save(e)
}

// Foreign returns the sandboxes of a newer brood: what they need is not known.
func (h *Host) Foreign() []id.Sandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.foreign))
}

// ForksOf returns the names of the sandboxes that were forked from a
// checkpoint.
func (h *Host) ForksOf(d digest.Digest) []id.Name {
	var all []id.Name
	for _, sb := range h.List() {
		if sb.Origin != nil && sb.Origin.Digest == d {
			all = append(all, sb.Name)
		}
	}
	return all
}

func (h *Host) entry(name id.Name) (*entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.names[name]
	if !ok {
		return nil, errs.New(errs.NotFound, "no sandbox is called %q here: `brood sb ls` shows those there are", name)
	}
	return e, nil
}

// reserve takes a name for a sandbox that is about to be made.
func (h *Host) reserve(rec record) (*entry, error) {
	e := newEntry(rec)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, taken := h.names[rec.Name]; taken {
		return nil, errs.New(errs.AlreadyExists, "a sandbox called %q exists: choose another name or remove it with `brood sb rm %s`", rec.Name, rec.Name)
	}
	if h.p.MaxSandboxes > 0 && len(h.names) >= h.p.MaxSandboxes {
		return nil, errs.New(errs.ResourceExhausted, "the limit of sandboxes on this machine, %d, is reached: remove some, or raise max_sandboxes", h.p.MaxSandboxes)
	}
	h.names[rec.Name] = e
	return e, nil
}

// forget frees a name.
func (h *Host) forget(e *entry) {
	e.mu.Lock()
	name := e.rec.Name
	e.gone = true
	e.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names[name] == e {
		delete(h.names, name)
	}
}

// hold takes an entry for one operation.
func (e *entry) hold(ctx context.Context) (release func(), err error) {
	select {
	case e.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another operation on the sandbox: %w", context.Cause(ctx))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		<-e.busy
		return nil, errs.New(errs.NotFound, "sandbox %q was removed meanwhile", e.rec.Name)
	}
	return func() { <-e.busy }, nil
}

// slot waits until the machine may start one more sandbox.
func (h *Host) slot(ctx context.Context) (release func(), err error) {
	select {
	case h.starting <- struct{}{}:
		return func() { <-h.starting }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (e *entry) view() Sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rec.Sandbox
}

// change alters a record in memory.
func (e *entry) change(f func(*Sandbox)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.rec.Sandbox)
}

// save writes a record. It is volatile: a sandbox ends with the machine's
// power anyway.
func (h *Host) save(e *entry) error {
	e.mu.Lock()
	rec := e.rec
	e.mu.Unlock()
	if err := schema.Write(h.files(rec.ID).record(), rec, home.Volatile); err != nil {
		return errs.New(errs.Internal, "record of sandbox %s: %w", rec.Name, err)
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// openFiles makes a sandbox's folder and the files its guest writes.
func (h *Host) openFiles(sb id.Sandbox) (sandbox.Files, error) {
	f := h.files(sb)
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return sandbox.Files{}, err
	}
	var opened []*os.File
	for i, p := range []string{f.diagnostics(), f.logs()[0], f.logs()[1]} {
		flags := os.O_RDWR | os.O_CREATE
		if i == 0 {
			flags |= os.O_APPEND // the log's segments are written at offsets, which append mode refuses
		}
		file, err := os.OpenFile(p, flags, 0o600)
		if err != nil {
			closeAll(opened)
			return sandbox.Files{}, err
		}
		opened = append(opened, file)
	}
	return sandbox.Files{Diagnostics: opened[0], Log: [2]*os.File{opened[1], opened[2]}}, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
