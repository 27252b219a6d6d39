package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite" // registers the driver "sqlite"
	lib "modernc.org/sqlite/lib"

	"brood/internal/base/errs"
	"brood/internal/home"
)

// History is an open history file.
type History struct {
	db *sql.DB
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

// Open opens the history in the file at path, making or migrating it.
func Open(ctx context.Context, path string) (*History, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, home.DiskError(err, "history")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite would make it readable for all
	if err != nil {
		return nil, home.DiskError(err, "history")
	}
	if err := f.Close(); err != nil {
		return nil, home.DiskError(err, "history")
	}
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"_pragma": {"busy_timeout(20000)", "journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(128)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, errs.New(errs.Internal, "history %s: %w", path, err)
	}
	db.SetMaxOpenConns(1) // one writer at a time, and no connection that is opened for nothing
	h := &History{db: db}
	if err := h.migrate(ctx); err != nil {
		return nil, errors.Join(failure(err, "history %s", path), db.Close())
	}
	return h, nil
}

// PutAside moves a damaged file away, so that the next Open begins anew, and
// returns where it is now. What was put aside before is replaced.
func PutAside(path string) (string, error) {
	aside := path + ".damaged"
	if err := os.Rename(path, aside); err != nil {
		return "", home.DiskError(err, "history")
	}
	for _, log := range []string{path + "-wal", path + "-shm"} { // they belong to what is gone
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
func (h *History) Close() error { return h.db.Close() }

func (h *History) migrate(ctx context.Context) error {
	var has int
	if err := h.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return err
	}
	if has == format {
		return nil
	}
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	// Another process may have been faster.
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
		return err
	}
	if has > format {
		return errs.New(errs.Unsupported, "it has format %d and this brood knows up to %d: a newer brood wrote it, use that one", has, format)
	}
	for ; has < format; has++ {
		if _, err := tx.ExecContext(ctx, migrations[has]); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", format)); err != nil {
		return err
	}
	return tx.Commit()
}

// failure gives an error of SQLite its code and says what to do.
func failure(err error, what string, args ...any) error {
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
