package exec

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/sandbox/batch"
	"brood/internal/sandbox/checkpoint"
	"brood/internal/sandbox/host"
)

// What is kept of batches that are done (F47).
const (
	KeepFor = 24 * time.Hour
	KeepMax = 100
)

// Params say what a Manager works with.
type Params struct {
	Home        *home.Home
	Host        *host.Host
	Checkpoints *checkpoint.Store
	Log         *slog.Logger
}

// Manager runs the batches of one daemon.
type Manager struct {
	p     Params
	group *life.Group
	room  *ledger

	mu    sync.Mutex // guards books and keys
	books map[id.Batch]*book
	keys  map[string]id.Batch
}

// Open reads the batches of the home and goes on with those that were at
// work.
func Open(ctx context.Context, p Params) (*Manager, error) {
	m := &Manager{
		p: p, group: life.NewGroup(context.WithoutCancel(ctx)), room: &ledger{host: p.Host, grants: map[grant]int{}},
		books: map[id.Batch]*book{}, keys: map[string]id.Batch{},
	}
	folders, err := os.ReadDir(p.Home.Batches())
	if err != nil {
		return nil, err
	}
	for _, f := range folders {
		if err := m.reopen(id.Batch(f.Name())); err != nil {
			return nil, errors.Join(err, m.group.Stop())
		}
	}
	m.prune(time.Now())
	return m, nil
}

// Close stops the batches where they are; Open goes on with them.
func (m *Manager) Close() error { return m.group.Stop() }

// Start begins a batch. Everything that can be refused is refused before
// anything is done. With a key that was used before it returns that batch.
func (m *Manager) Start(ctx context.Context, req batch.Request, key string) (Batch, error) {
	if err := batch.Validate(req); err != nil {
		return Batch{}, err
	}
	if len(key) > 256 {
		return Batch{}, errs.New(errs.InvalidArgument, "a batch key of %d bytes: use at most 256", len(key))
	}
	bk, known, err := m.claim(key)
	if err == nil && known && !reflect.DeepEqual(bk.rec.Request, req) {
		err = errs.New(errs.InvalidArgument, "key %.80q belongs to batch %s, which is another request: use a key of its own for each", key, bk.rec.ID)
	}
	if err != nil || known {
		return Batch{bk}, err
	}
	if err := m.begin(ctx, bk, req); err != nil {
		m.unclaim(bk)
		return Batch{}, err
	}
	return Batch{bk}, nil
}

// claim makes a place for a new batch, or finds the one with the same key.
func (m *Manager) claim(key string) (_ *book, known bool, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.keys[key]; ok && key != "" {
		if m.books[b] == nil {
			return nil, false, errs.New(errs.Unavailable, "the batch with key %q is being checked: call again", key)
		}
		return m.books[b], true, nil
	}
	bk := newBook(record{Info: Info{ID: id.NewBatch(), Key: key, CreatedAt: time.Now()}})
	if key != "" {
		m.keys[key] = bk.rec.ID
	}
	return bk, false, nil
}

func (m *Manager) unclaim(bk *book) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys[bk.rec.Key] == bk.rec.ID {
		delete(m.keys, bk.rec.Key)
	}
	delete(m.books, bk.rec.ID)
}

// begin checks the request whole, saves sources that are sandboxes, and lets
// the batch go.
func (m *Manager) begin(ctx context.Context, bk *book, req batch.Request) (err error) {
	found, err := m.find(req)
	if err != nil {
		return err
	}
	seed := make([]byte, 32)
	rand.Read(seed) // never fails since Go 1.24
	params := batch.Params{ID: bk.rec.ID, Now: bk.rec.CreatedAt, Request: req, Rand: [32]byte(seed)}
	if params.Target, err = target(req); err != nil {
		return err
	}
	params.Sources = sourcesOf(found)
	trial, err := batch.New(params)
	if err != nil {
		return err
	}
	if err := trial.Taken(map[id.Machine][]id.Name{id.Local: m.p.Host.Has(trial.Names())}); err != nil {
		return err
	}
	release := m.p.Host.HoldBatch(bk.rec.ID)
	var undo life.Undo
	defer undo.Run(ctx, &err)
	undo.Do(func(context.Context) error { release(); return m.p.Host.DropUnused() })
	if params.Sources, err = m.save(ctx, bk.rec.ID, found); err != nil {
		return err
	}
	held := m.p.Host.HoldBatch(bk.rec.ID, digestsOf(params.Sources)...)
	undo.Do(func(context.Context) error { held(); return nil })
	b, err := batch.New(params)
	if err != nil {
		return err
	}
	bk.rec.Request, bk.rec.Total, bk.rec.Rand, bk.rec.Sources = req, b.Len(), seed, params.Sources
	bk.rec.Rules = batch.Rules
	dir := m.dir(bk.rec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.New(errs.InsufficientDisk, "folder of batch %s: %w", bk.rec.ID, err)
	}
	undo.Do(func(context.Context) error { return os.RemoveAll(dir) })
	if err := schema.Write(m.record(bk.rec.ID), bk.rec, home.Durable); err != nil {
		return err
	}
	j, err := openJournal(m.journal(bk.rec.ID))
	if err != nil {
		return err
	}
	undo.Keep()
	m.prune(time.Now())
	m.mu.Lock()
	m.books[bk.rec.ID] = bk
	m.mu.Unlock()
	m.run(&worker{m: m, b: b, bk: bk, j: j, release: func() { held(); release() }}, batch.Tick{})
	return nil
}

// target is the machine that a request's "on" means: only this one is known.
func target(req batch.Request) (id.Machine, error) {
	where, err := batch.ParseOn(req.On)
	if err != nil {
		return "", err
	}
	if where.Host != "" && where.Host != string(id.Local) {
		return "", errs.New(errs.NotFound, "no machine is called %q: this daemon knows itself only, use local", where.Host)
	}
	return id.Local, nil
}

// Get returns a batch.
func (m *Manager) Get(b id.Batch) (Batch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	bk, ok := m.books[b]
	if !ok {
		return Batch{}, errs.New(errs.NotFound, "no batch has the id %.80q: `brood batch ls` shows those there are, books are kept for a day", b)
	}
	return Batch{bk}, nil
}

// List returns every batch, newest first.
func (m *Manager) List() []Batch {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Batch, 0, len(m.books))
	for _, bk := range m.books {
		all = append(all, Batch{bk})
	}
	slices.SortFunc(all, func(a, b Batch) int {
		if c := b.b.rec.CreatedAt.Compare(a.b.rec.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID()), string(b.ID()))
	})
	return all
}

// Cancel stops what has not started; what is ready stays. A batch that is over
// is left as it is.
func (m *Manager) Cancel(b id.Batch) (Batch, error) {
	v, err := m.Get(b)
	if err != nil {
		return v, err
	}
	v.b.mu.Lock()
	v.b.rec.Cancelled = v.b.rec.Cancelled || !v.b.done
	v.b.mu.Unlock()
	v.b.report(batch.Cancel{})
	return v, nil
}

// prune forgets the books of batches that are long done.
func (m *Manager) prune(now time.Time) {
	kept := 0
	for _, v := range m.List() {
		i, _, _, _ := v.Info()
		if i.Summary == nil {
			continue
		}
		if kept++; kept <= KeepMax && now.Sub(i.DoneAt) < KeepFor {
			continue
		}
		if err := os.RemoveAll(m.dir(i.ID)); err != nil {
			m.p.Log.Warn("forget a batch", "batch", i.ID, "error", err)
			continue
		}
		m.unclaim(v.b)
	}
}

func (m *Manager) dir(b id.Batch) string     { return filepath.Join(m.p.Home.Batches(), string(b)) }
func (m *Manager) record(b id.Batch) string  { return filepath.Join(m.dir(b), "batch.json") }
func (m *Manager) journal(b id.Batch) string { return filepath.Join(m.dir(b), "journal.jsonl") }

// reopen reads a batch's folder. One that was at work goes on.
func (m *Manager) reopen(name id.Batch) error {
	var rec record
	err := schema.Read(m.record(name), &rec)
	switch {
	case errs.Is(err, errs.Unsupported):
		m.p.Log.Warn("a batch is left alone", "error", err)
		return nil
	case err != nil || rec.ID != name || rec.Summary == nil && len(rec.Rand) != len([32]byte{}):
		return m.salvage(name, err) // without forks it never began
	}
	bk := m.reopened(rec)
	if rec.Summary != nil {
		return nil
	}
	if rec.Rules != batch.Rules {
		m.p.Log.Warn("a batch is left where it was: another version of brood began it", "batch", name)
		bk.halted = errs.New(errs.FailedPrecondition, "another version of brood began it and did not end it; its forks are as they were")
		bk.rec.Note, bk.done = bk.halted.Error(), true
		close(bk.stopped)
		return nil
	}
	if err := m.goOn(bk); err != nil {
		return fmt.Errorf("go on with batch %s: %w", name, err)
	}
	return nil
}

// reopened takes a record into the books. One that is over needs no more.
func (m *Manager) reopened(rec record) *book {
	bk := newBook(rec)
	m.books[rec.ID] = bk
	if rec.Key != "" {
		m.keys[rec.Key] = rec.ID
	}
	if rec.Summary != nil {
		bk.done = true
		close(bk.stopped)
	}
	return bk
}

// goOn replays a batch that was at work and tells it which of its forks
// outlived the daemon.
func (m *Manager) goOn(bk *book) error {
	b, err := batch.New(batch.Params{
		ID: bk.rec.ID, Now: bk.rec.CreatedAt, Request: bk.rec.Request, Rand: [32]byte(bk.rec.Rand), Sources: bk.rec.Sources, Target: id.Local,
	})
	if err != nil {
		return err
	}
	var records []batch.Record
	steps := 0
	err = readJournal(m.journal(bk.rec.ID), func(at time.Time, ev batch.Event) {
		records = append(records, emitted(b.Step(at, ev))...)
		steps++
	})
	alive := m.alive(bk.rec.ID)
	if err == nil && steps == 0 && len(alive) > 0 { // it must have told of them
		err = errs.New(errs.DataLoss, "journal %s is empty, and forks are there: %d", m.journal(bk.rec.ID), len(alive))
	}
	switch {
	case errs.Is(err, errs.DataLoss):
		m.damaged(bk, err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case !bk.rec.Damaged:
		bk.rec.Note = "the daemon was started again while the batch was at work; it went on"
	}
	bk.add(records)
	j, err := openJournal(m.journal(bk.rec.ID))
	if err != nil {
		return err
	}
	w := &worker{m: m, b: b, bk: bk, j: j, release: m.p.Host.HoldBatch(bk.rec.ID, digestsOf(bk.rec.Sources)...)}
	m.run(w, batch.Restarted{Alive: alive})
	return nil
}

// damaged says of a batch at work that a part of its journal is lost.
func (m *Manager) damaged(bk *book, why error) {
	m.p.Log.Error("a batch goes on from where its journal can still be read", "batch", bk.rec.ID, "error", why)
	bk.rec.Note, bk.rec.Damaged = "a part of its journal could not be read any more; it went on from before that", true
	// The next daemon finds a journal that can be read.
	if err := schema.Write(m.record(bk.rec.ID), bk.rec, home.Durable); err != nil {
		m.p.Log.Error("that the books of a batch are damaged is not written down", "batch", bk.rec.ID, "error", err)
	}
}

// alive are the forks of a batch that run here with a confirmed identity: the
// host has removed all others.
func (m *Manager) alive(b id.Batch) []batch.Alive {
	var all []batch.Alive
	for _, sb := range m.p.Host.List() {
		if o := sb.Origin; o != nil && o.Batch == b {
			all = append(all, batch.Alive{Token: batch.EffectID(o.Token), Index: o.Index})
		}
	}
	return all
}
