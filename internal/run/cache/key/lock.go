package key

import (
	"context"

	"brood/internal/run"
	"brood/internal/run/cache/files"
	"brood/internal/run/cache/glob"
)

// lock is the lockfile as the projects see it.
type lock struct {
	whole *Group
	list  []files.File
}

// of returns what the project in dir sees.
func (l *lock) of(string) *Group { return l.whole }

func (l *lock) files() []files.File { return l.list }

func (k *Keyer) readLock(ctx context.Context) error {
	k.lock = &lock{}
	if k.cfg.Lockfile != "" {
		set, err := glob.New(".", []string{k.cfg.Lockfile})
		if err != nil {
			return err
		}
		if k.lock.list, err = k.collect(ctx, selection{set: set}); err != nil {
			return err
		}
	}
	k.lock.whole = newGroup(LockGroup, fileItems(k.lock.list))
	return nil
}

// outputs compiles the output globs of a task.
func (k *Keyer) outputs(t *run.Task) (*glob.Set, error) { return glob.New(t.Dir, t.Outputs) }
