package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/run/cache/entry"
)

// Log returns what the task wrote when it ran.
func (h *Hit) Log(ctx context.Context) (io.ReadCloser, error) {
	l := h.entry.Log
	if l.Inline != nil || l.Size == 0 {
		return io.NopCloser(bytes.NewReader(l.Inline)), nil
	}
	var b bytes.Buffer
	if err := h.c.content(ctx, &b, l); err != nil {
		return nil, fmt.Errorf("the stored output of %s: %w", h.task.ID, err)
	}
	return io.NopCloser(&b), nil
}

// content writes a content to w, fetching it first when it is not here, and
// again when it is damaged.
func (c *Cache) content(ctx context.Context, w io.Writer, want entry.Content) error {
	if want.Inline != nil || want.Size == 0 {
		_, err := w.Write(want.Inline)
		return err
	}
	err := c.store.Copy(w, want.Digest, want.Size)
	lost := errs.Is(err, errs.NotFound) || errs.Is(err, errs.DataLoss)
	if !lost || c.shared == nil || !c.cfg.Shared.Read {
		return err
	}
	if e := c.shared.fetch(ctx, []entry.Content{want}, c.store); e != nil {
		return err
	}
	if back, ok := w.(interface{ restart() error }); ok {
		if err := back.restart(); err != nil {
			return err
		}
	} else if b, ok := w.(*bytes.Buffer); ok {
		b.Reset()
	}
	return c.store.Copy(w, want.Digest, want.Size)
}

// restore is Restore but for what follows from its error.
func (h *Hit) restore(ctx context.Context, waits func(beside id.Task)) (touched bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restore %s: %w", h.task.ID, err)
		}
	}()
	c := h.c
	h.leaveToOthers()
	turns, same, now := c.count(h.task), false, []found(nil)
	busy := turns%2 != 0 // somebody writes there
	if !busy {
		if same, now, err = h.matches(ctx); same {
			c.leave(h.task, turns, h.entry, now)
		}
		if same || err != nil {
			return false, err
		}
	}
	turn, waited, err := c.Enter(ctx, h.task, waits)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, turn.End()) }()
	unlock, again, err := c.lockProject(ctx, h.task.Dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	if waited {
		h.leaveToOthers()
	}
	if busy || waited || again {
		if same, now, err = h.matches(ctx); err != nil {
			return false, err
		}
		if turns = c.count(h.task); same && turns%2 == 0 {
			c.leave(h.task, turns, h.entry, now)
			return false, nil
		}
	}
	if err := turn.Begin(); err != nil {
		return false, err
	}
	if !same {
		touched, err = h.place(ctx)
		if errs.Is(err, errs.DataLoss) || errs.Is(err, errs.NotFound) {
			c.drop(h.entry)
		}
		if err != nil {
			return touched, err
		}
		if same, now, err = h.matches(ctx); err != nil {
			return touched, err
		}
	}
	if turn != nil && same {
		turn.made(h.entry, now)
	}
	return touched, nil
}

// leaveToOthers takes out of the entry what a task beside this one has made
// since, and what is there: the result holds it as it was once.
func (h *Hit) leaveToOthers() {
	beside := h.c.cfg.Beside(h.task.ID)
	if len(beside) == 0 {
		return
	}
	theirs := func(name string) bool {
		if _, ok := slices.BinarySearch(beside, id.Task(h.c.cfg.Stamps.Owner(name))); !ok {
			return false
		}
		_, err := h.c.root.Lstat(name)
		return err == nil
	}
	e := *h.entry
	e.Files = slices.DeleteFunc(slices.Clone(e.Files), func(f entry.File) bool { return theirs(f.Path) })
	e.Links = slices.DeleteFunc(slices.Clone(e.Links), func(l entry.Link) bool { return theirs(l.Path) })
	h.entry = &e
}

// lockProject lets one process at a time restore into a project, as far as the
// cache can be written.
func (c *Cache) lockProject(ctx context.Context, dir string) (unlock func(), waited bool, err error) {
	none := func() {}
	locks := filepath.Join(c.cfg.Dir, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return none, false, nil //nolint:nilerr // no folder, no locks
	}
	l := flock.New(filepath.Join(locks, digest.Of([]byte(c.cfg.Root+"\x00"+dir)).Short()), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err == nil && !ok {
		waited = true
		_, err = l.TryLockContext(ctx, 10*time.Millisecond)
	}
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	if err != nil {
		return none, false, nil //nolint:nilerr // as where there is no folder
	}
	return func() { _ = l.Unlock() }, waited, nil
}
