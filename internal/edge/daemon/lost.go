package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"brood/internal/base/errs"
)

// homePeriod is how often the daemon looks whether its home is still there.
const homePeriod = 2 * time.Second

// own remembers the lock file that this daemon holds.
func (d *Daemon) own() (err error) {
	d.lockFile, err = os.Stat(d.lockPath())
	return err
}

func (d *Daemon) lockPath() string { return filepath.Join(d.home.Dir(), "daemon.lock") }

// watchHome ends the daemon when its home was deleted, or replaced by another:
// nobody can reach it any more, and what it started would run on unseen.
func (d *Daemon) watchHome(ctx context.Context) error {
	tick := time.NewTicker(homePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		st, err := os.Stat(d.lockPath())
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || os.SameFile(st, d.lockFile)) {
			continue
		}
		d.lost.Store(true)
		d.stop()
		return errs.New(errs.FailedPrecondition, "the folder %s was deleted while its daemon ran: the daemon ends, and the sandboxes with it", d.home.Dir())
	}
}

// ender is a driver that can end what it runs without its files.
type ender interface {
	End(ctx context.Context) error
}

// release lets go of the driver: sandboxes run on unless their home is lost.
func (d *Daemon) release(ctx context.Context) error {
	if !d.lost.Load() {
		return d.driver.Close(ctx)
	}
	// Close would speak to whoever has the same folder now.
	if e, ok := d.driver.(ender); ok {
		return e.End(ctx)
	}
	return nil
}

// remove removes a file of the daemon's from its home; another's home has
// another's.
func (d *Daemon) remove(path string) error {
	if d.lost.Load() {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
