package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite" // registers the driver "sqlite"
	lib "modernc.org/sqlite/lib"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// History is the history in one file, and in what lies beside it.
type History struct {
	path    string
	warn    func(string)
	reading bool   // see Reading
	copied  string // the folder of the copy that is read

	mu sync.Mutex // guards db
	db *sql.DB    // nil until it is needed
}

// format is the number of the newest schema; migrations[n] leads from n to n+1.
const format = 1

var migrations = [format]string{`
CREATE TABLE workspaces (id INTEGER PRIMARY KEY, root TEXT NOT NULL UNIQUE, print BLOB);
CREATE TABLE runs (
	id TEXT PRIMARY KEY, workspace INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER NOT NULL,
	platform TEXT NOT NULL, command TEXT NOT NULL, status TEXT NOT NULL, counts TEXT NOT NULL, tasks BLOB NOT NULL);
CREATE INDEX runs_by_time ON runs (workspace, began);
CREATE TABLE figures (
	workspace INTEGER NOT NULL, platform TEXT NOT NULL, task TEXT NOT NULL,
	runs INTEGER NOT NULL, wall INTEGER NOT NULL, wall90 INTEGER NOT NULL, cpu INTEGER NOT NULL, peak INTEGER NOT NULL,
	sampled INTEGER NOT NULL, flaky INTEGER NOT NULL, failures INTEGER NOT NULL,
	PRIMARY KEY (workspace, platform, task)) WITHOUT ROWID;
CREATE TABLE samples (
	workspace INTEGER NOT NULL, platform TEXT NOT NULL, task TEXT NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY (workspace, platform, task)) WITHOUT ROWID;
CREATE TABLE keys (
	workspace INTEGER NOT NULL, task TEXT NOT NULL, last BLOB NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY (workspace, task)) WITHOUT ROWID;
CREATE TABLE groups (sum BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
`}

// New returns the history in the file at path. Nothing is opened before it is
// needed: most runs teach nothing, and the journal does for them. warn is told
// what the user should know and what fails nothing.
func New(path string, warn func(string)) *History { return &History{path: path, warn: warn} }

// whole does something with the database. A damaged one is put aside, and it
// begins anew: only forecasts are lost.
func (h *History) whole(ctx context.Context, do func() error) error {
	try := func() error {
		if err := h.open(ctx); err != nil {
			return err
		}
		return do()
	}
	err := try()
	var e *sqlite.Error
	if !errs.Is(err, errs.DataLoss) || !errors.As(err, &e) || h.copied != "" {
		return err
	}
	aside, failed := h.putAside()
	if failed != nil {
		return errors.Join(err, failed)
	}
	h.warn("the history was damaged and is now " + aside + ": forecasts begin anew")
	return try()
}

// exists says that there is a database.
func (h *History) exists() bool {
	_, err := os.Stat(h.path)
	return err == nil
}

// open opens the database, making or migrating it, and takes over what the
// journals have.
func (h *History) open(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.db != nil {
		return nil
	}
	err := h.openFile(ctx)
	for began := time.Now(); busy(err) && time.Since(began) < patience; err = h.openFile(ctx) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(openAgain):
		}
	}
	if err != nil {
		err = h.openCopied(ctx, err)
	}
	return err
}

// patience is how long others may keep the file. SQLite waits so long by itself,
// but not when two make a log for the same new file: then one is refused at
// once, and tries again after openAgain.
const (
	patience  = 20 * time.Second
	openAgain = 10 * time.Millisecond
)

func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == lib.SQLITE_BUSY
}

func (h *History) openFile(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return home.DiskError(err, "history")
	}
	f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for all
	if err != nil {
		return home.DiskError(err, "history")
	}
	if err := f.Close(); err != nil {
		return home.DiskError(err, "history")
	}
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: h.path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()), "journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(128)"},
		"_txlock": {"immediate"},
	}.Encode()}
	if h.db, err = sql.Open("sqlite", dsn.String()); err != nil {
		return errs.New(errs.Internal, "history %s: %w", h.path, err)
	}
	h.db.SetMaxOpenConns(1) // one writer at a time, and no connection that is opened for nothing
	made, err := h.migrate(ctx)
	if err == nil {
		err = h.takeOver(ctx, made)
	}
	if err != nil {
		err = errors.Join(h.failure(err, "history %s", h.path), h.db.Close())
		h.db = nil
	}
	return err
}

// putAside moves a damaged file away and returns where it is now. What was put
// aside before is replaced.
func (h *History) putAside() (string, error) {
	_ = h.Close() // it is damaged, whatever closing it says
	h.mu.Lock()
	defer h.mu.Unlock()
	h.db = nil
	aside := h.path + ".damaged"
	if err := os.Rename(h.path, aside); err != nil {
		return "", home.DiskError(err, "history")
	}
	for _, log := range []string{h.path + "-wal", h.path + "-shm"} { // they belong to what is gone
		if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", home.DiskError(err, "history")
		}
	}
	return aside, nil
}

// Close closes the file. The last one to close it also moves what was written
// from the log (WAL) into the file, which waits for the disk four times: a
// program that ends anyway need not call it, and SQLite takes the log up when
// the file is opened next. A log of 128 pages is moved by whoever writes then.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.db != nil {
		err = h.db.Close()
	}
	if h.copied != "" {
		err = errors.Join(err, os.RemoveAll(h.copied))
	}
	return err
}

// migrate makes the schema the newest; made says that there was none.
func (h *History) migrate(ctx context.Context) (made bool, err error) {
	var has int
	if err := h.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return false, err
	}
	if has == format {
		return false, nil
	}
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	// Another process may have been faster.
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return false, err
	}
	if has > format {
		return false, errs.New(errs.Unsupported, "it has format %d and this brood knows up to %d: a newer brood wrote it, use that one", has, format)
	}
	made = has == 0
	for ; has < format; has++ {
		if _, err := tx.ExecContext(ctx, migrations[has]); err != nil {
			return false, err
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", format)); err != nil {
		return false, err
	}
	return made, tx.Commit()
}

// failure gives an error of SQLite its code and says what to do.
func (h *History) failure(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	what = fmt.Sprintf(what, args...)
	var e *sqlite.Error
	if !errors.As(err, &e) {
		if errs.CodeOf(err) != errs.Internal {
			return fmt.Errorf("%s: %w", what, err)
		}
		return errs.New(errs.Internal, "%s: %w", what, err)
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return errs.New(errs.InsufficientDisk, "%s: the disk is full: free some space (%w)", what, err)
	case lib.SQLITE_IOERR:
		// SQLite does not tell which: a disk without room is the usual one.
		if full := home.Room(filepath.Dir(h.path), 0, 1<<20); errs.Is(full, errs.InsufficientDisk) {
			return errs.New(errs.InsufficientDisk, "%s: the disk is full: free some space (%w)", what, err)
		}
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return errs.New(errs.Unavailable, "%s: another brood holds it for long: try again when that is done (%w)", what, err)
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return errs.New(errs.DataLoss, "%s is damaged: remove it, only forecasts are lost (%w)", what, err)
	case lib.SQLITE_PERM, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN:
		return errs.New(errs.PermissionDenied, "%s: %w", what, err)
	}
	return errs.New(errs.Internal, "%s: %w", what, err)
}

// workspace returns the number of a workspace, making one if there is none.
func workspace(ctx context.Context, tx *sql.Tx, root string) (n int64, print []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT id, print FROM workspaces WHERE root = ?", root).Scan(&n, &print)
	if !errors.Is(err, sql.ErrNoRows) {
		return n, print, err
	}
	r, err := tx.ExecContext(ctx, "INSERT INTO workspaces (root) VALUES (?)", root)
	if err != nil {
		return 0, nil, err
	}
	n, err = r.LastInsertId()
	return n, nil, err
}
