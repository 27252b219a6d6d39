package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// homePeriod is how often the daemon looks whether its home is still there,
// and in it what leads to the daemon.
const homePeriod = 2 * time.Second

// What can happen to a home under its daemon.
const (
	deleted = iota + 1
	moved
)

// lockName is the file of the daemon's lock in its home.
const lockName = "daemon.lock"

// own remembers the lock file that this daemon holds, and opens its home.
func (d *Daemon) own() (err error) {
	d.sign(home.Starting)
	if d.folder, err = os.OpenRoot(d.home.Dir()); err != nil {
		return err
	}
	if d.lockFile, err = d.folder.Stat(lockName); err != nil {
		return errors.Join(err, d.folder.Close())
	}
	return nil
}

// sign says in the lock how far this daemon is. It is for messages alone.
func (d *Daemon) sign(state string) {
	if err := d.lock.Sign(state); err != nil {
		d.log.Warn("the lock is not signed", "error", err)
	}
}

// watchHome ends the daemon when its home was deleted, moved or replaced by
// another: nobody can reach it any more. In one that is there it puts back what
// leads to the daemon.
func (d *Daemon) watchHome(ctx context.Context, s *socket) error {
	tick := time.NewTicker(homePeriod)
	defer tick.Stop()
	complaint := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := d.away(); err != nil {
			d.stop()
			return err
		}
		switch err := d.renew(s); {
		case err == nil:
			complaint = ""
		case err.Error() != complaint:
			complaint = err.Error()
			d.log.Error("what leads to this daemon cannot be made anew", "error", err)
		}
	}
}

// away is an error when the home is no longer where it was. One that was moved
// has all of its files: its sandboxes run on, since the next daemon finds them.
// What a deleted one started would run on unseen.
func (d *Daemon) away() error {
	if d.inPlace() {
		return nil
	}
	if st, err := d.folder.Stat(lockName); err != nil || !os.SameFile(st, d.lockFile) {
		d.gone.Store(deleted)
		return errs.New(errs.FailedPrecondition, "the folder %s was deleted while its daemon ran: the daemon ends, and the sandboxes with it", d.home.Dir())
	}
	d.gone.Store(moved)
	return errs.New(errs.FailedPrecondition, "the folder %s was moved while its daemon ran: the daemon ends, and the sandboxes run on. "+
		"Move it back, or set BROOD_HOME to where it is now: the next command there starts a daemon that takes them over", d.home.Dir())
}

// inPlace reports whether the home is where it was; what cannot be seen is no
// reason to end.
func (d *Daemon) inPlace() bool {
	st, err := os.Stat(filepath.Join(d.home.Dir(), lockName))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return os.SameFile(st, d.lockFile)
}

// renew makes the socket and the discovery file anew when they are not this
// daemon's.
func (d *Daemon) renew(s *socket) error {
	socket, err := s.renew()
	if err != nil {
		return err
	}
	discovery, err := d.discover()
	if err == nil && (socket || discovery) {
		d.log.Warn("what leads to this daemon was lost or replaced and is made anew", "socket", socket, "discovery", discovery)
	}
	return err
}

// discover tells clients how to reach the daemon, unless the file does so
// already. It holds the token: nobody else may read it.
func (d *Daemon) discover() (written bool, err error) {
	b, err := json.Marshal(d.info)
	if err != nil {
		return false, err
	}
	b = append(b, '\n')
	if now, err := os.ReadFile(d.home.Discovery()); err == nil && bytes.Equal(now, b) {
		return false, nil
	}
	return true, renameio.WriteFile(d.home.Discovery(), b, 0o600)
}

// announce is discover for a daemon that begins. On a full disk it does without
// the file: the socket is where it always is, and who wants to delete something
// needs a daemon for it. The file comes as soon as there is room.
func (d *Daemon) announce() error {
	_, err := d.discover()
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	d.log.Warn("the disk is full: this daemon is reached by its socket alone", "error", err)
	return d.remove(d.home.Discovery()) // that of the last one leads nowhere
}

// ender is a driver that can end what it runs without its files.
type ender interface {
	End(ctx context.Context) error
}

// release lets go of the driver: sandboxes run on unless their home is
// deleted.
func (d *Daemon) release(ctx context.Context) error {
	switch d.gone.Load() {
	case moved:
		return nil // Close would speak to whoever has the same folder now
	case deleted:
		if e, ok := d.driver.(ender); ok {
			return e.End(ctx)
		}
		return nil
	}
	return d.driver.Close(ctx)
}

// remove removes a file of the daemon's from its home, also when that was
// moved; another's home has another's.
func (d *Daemon) remove(path string) error {
	if err := d.folder.Remove(filepath.Base(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
