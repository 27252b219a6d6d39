package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/home"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
)

// Turn is the right to write a task's outputs, which one run of a workspace has
// at a time. Its file is locked meanwhile, and its size counts the writes: odd
// while somebody writes, or died doing so.
type Turn struct {
	c     *Cache
	task  *run.Task
	lock  *flock.Flock
	kept  []*flock.Flock // that those beside it do not write meanwhile
	count int64          // once it was begun
	began time.Time      // likewise
	entry *entry.Entry   // of what was made, with its files; nil is not known
	files []found
}

// turnPoll is how often a run that waits for another one looks again.
const turnPoll = 25 * time.Millisecond

// Enter takes the turn of a task, nil for one without outputs; End gives it back.
// waits is called when another run has it, or with the task beside it that has
// the outputs. taken says that another run had it since it was looked up: what
// the task makes may be there by now. Where the cache cannot be written there are
// no turns.
func (c *Cache) Enter(ctx context.Context, t *run.Task, waits func(beside id.Task)) (turn *Turn, taken bool, err error) {
	if len(t.Outputs) == 0 {
		return nil, false, nil
	}
	turn = &Turn{c: c, task: t, lock: flock.New(c.turnFile(t.ID), flock.SetPermissions(0o600))}
	// In one order everywhere, so that nobody waits for who waits for them.
	all := append(slices.Clone(c.cfg.Beside(t.ID)), t.ID)
	slices.Sort(all)
	for _, of := range all {
		l := turn.lock
		try, wait := l.TryLock, l.TryLockContext
		if of != t.ID {
			l = flock.New(c.turnFile(of), flock.SetPermissions(0o600))
			try, wait = l.TryRLock, l.TryRLockContext
		}
		var ok bool
		if ok, err = try(); err == nil && !ok {
			who := of
			if of == t.ID {
				who = c.holder(t, l)
				taken = who == ""
			}
			err = patient(ctx, wait, func() { waits(who) })
		}
		if err != nil {
			break
		}
		if of != t.ID {
			turn.kept = append(turn.kept, l)
		}
	}
	if ctx.Err() != nil {
		return nil, taken, errors.Join(context.Cause(ctx), turn.unlock())
	}
	if err != nil { // a cache that cannot be written: nothing is saved there, and hits are hits
		return nil, false, turn.unlock() // what is in the way is said when something is to be saved
	}
	return turn, taken || c.wroteSince(t), nil
}

// holder says who has a task's turn: one of those beside it, which keep it from
// others, or another run.
func (c *Cache) holder(t *run.Task, l *flock.Flock) id.Task {
	if shared, err := l.TryRLock(); err != nil || !shared {
		return ""
	}
	_ = l.Unlock()
	if all := c.cfg.Beside(t.ID); len(all) > 0 {
		return all[0]
	}
	return "" // it is free by now
}

// quietly is how long is waited without a word.
const quietly = 100 * time.Millisecond

func patient(ctx context.Context, wait func(context.Context, time.Duration) (bool, error), says func()) error {
	short, cancel := context.WithTimeout(ctx, quietly)
	defer cancel()
	if ok, _ := wait(short, turnPoll); ok || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	says()
	_, err := wait(ctx, turnPoll)
	return err
}

func (t *Turn) unlock() (all error) {
	for _, l := range append(t.kept, t.lock) {
		all = errors.Join(all, l.Unlock())
	}
	return all
}

// wroteSince says that another run began to write a task's outputs since the
// task was looked up and not found.
func (c *Cache) wroteSince(t *run.Task) bool {
	c.mu.Lock()
	turns, asked := c.asked[t.ID]
	c.mu.Unlock()
	return asked && c.begun.others() && c.count(t) != turns
}

// Begin is called before anything is written.
func (t *Turn) Begin() error {
	if t == nil {
		return nil
	}
	if err := t.c.begun.add(); err != nil {
		return home.DiskError(err, "the turn of %s", t.task.ID)
	}
	t.began = time.Now()
	before := t.c.count(t.task)
	t.count = before + 1 + before%2
	return home.DiskError(os.Truncate(t.lock.Path(), t.count), "the turn of %s", t.task.ID) // a hole: it takes no room
}

// End lets others write the outputs.
func (t *Turn) End() error {
	if t == nil {
		return nil
	}
	var err error
	if t.count > 0 {
		if t.entry == nil && len(t.c.cfg.Beside(t.task.ID)) > 0 {
			err = t.c.claim(t.task, t.began)
		}
		err = errors.Join(err, t.c.bringBack(t.task), os.Truncate(t.lock.Path(), t.count+1))
		t.c.leave(t.task, t.count+1, t.entry, t.files)
	}
	return home.DiskError(errors.Join(err, t.unlock()), "the turn of %s", t.task.ID)
}

// made notes what lies there at the end of the turn.
func (t *Turn) made(e *entry.Entry, files []found) { t.entry, t.files = e, files }

// count is how many turns of a task there were, odd while one is going on.
func (c *Cache) count(t *run.Task) int64 {
	if len(t.Outputs) == 0 {
		return 0
	}
	st, err := os.Lstat(c.turnFile(t.ID))
	switch {
	case err == nil:
		return st.Size()
	case errors.Is(err, fs.ErrNotExist):
		return 0
	}
	return -1 // like none that was
}

// dying is a task beside one that died as it wrote, "" when none did.
func (c *Cache) dying(t id.Task) id.Task {
	for _, of := range c.cfg.Beside(t) {
		if st, err := os.Lstat(c.turnFile(of)); err == nil && st.Size()%2 != 0 {
			return of
		}
	}
	return ""
}

func (c *Cache) turns() string { return filepath.Join(c.cfg.Dir, "turns") }

func (c *Cache) turnFile(t id.Task) string {
	return filepath.Join(c.turns(), digest.Of([]byte(c.cfg.Root+"\x00"+string(t))).Short())
}

// begun counts the turns that the runs of a workspace begin, by the size of a
// file to which each adds a byte: as long as there are no others than one's own
// the tasks' files need not be looked at.
type begun struct {
	file *os.File
	err  error // why there is no file
	from int64
	mine atomic.Int64
}

// openBegun begins to count. Where it cannot, there may always be others; what
// is in the way is said when a turn begins.
func (c *Cache) openBegun() *begun {
	if err := os.MkdirAll(c.turns(), 0o700); err != nil {
		return &begun{err: err}
	}
	name := filepath.Join(c.turns(), digest.Of([]byte(c.cfg.Root)).Short()+".begun")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return &begun{err: err}
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return &begun{err: err}
	}
	return &begun{file: f, from: st.Size()}
}

func (b *begun) add() error {
	if b.err != nil {
		return b.err
	}
	if _, err := b.file.Write([]byte{'.'}); err != nil {
		return err
	}
	b.mine.Add(1)
	return nil
}

func (b *begun) others() bool {
	st, err := b.file.Stat()
	return err != nil || st.Size() != b.from+b.mine.Load()
}

func (b *begun) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}

// Disturbed says that another run may have written outputs in the workspace
// since the cache was opened.
func (c *Cache) Disturbed() bool { return c.begun.others() }
