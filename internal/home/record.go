package home

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"brood/internal/base/errs"
)

// maxRecord bounds what is read of one record: a batch of 10,000 forks is
// about 4 MiB, anything near this is not a record.
const maxRecord = 64 << 20

// Schema describes one kind of record.
type Schema struct {
	Kind   string // the noun for messages
	Format int    // the format this brood writes, 1 or more
	// Repair says in messages what to do about a damaged one; "" where only
	// whoever reads it knows.
	Repair string
	// Migrate[n] turns a record of format n into one of format n+1.
	Migrate map[int]func(map[string]any) error
}

// Durability says what a record must outlive.
type Durability bool

// A record that is Durable is on disk when Write returns. One that is not
// outlives the process but perhaps not a power loss: right for what a reboot
// ends anyway, such as a running sandbox.
const (
	Volatile Durability = false
	Durable  Durability = true
)

// Write writes v to path by rename, with the schema's format number. v must
// marshal to a JSON object that has no field "format".
func (s Schema) Write(path string, v any, d Durability) error {
	body, err := json.Marshal(v)
	if err != nil {
		return errs.New(errs.Internal, "%s record: %w", s.Kind, err)
	}
	head, err := json.Marshal(map[string]int{"format": s.Format})
	if err != nil {
		return err
	}
	if !bytes.Equal(body, []byte("{}")) {
		head = append(head[:len(head)-1], ',')
		head = append(head, body[1:]...)
	}
	if d == Volatile {
		return renamed(path, append(head, '\n'))
	}
	if err := renameio.WriteFile(path, append(head, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// renamed is renameio without fsync, which costs more than a fork.
func renamed(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// SyncDir makes the names in dir durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Read reads a record into v, migrating it forward in memory. NotFound when
// there is none, DataLoss when it is no record, Unsupported when a newer
// brood wrote it.
func (s Schema) Read(path string, v any) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, "%s record: %w", s.Kind, err)
	}
	if err == nil && st.Size() > maxRecord {
		return s.damaged(path, fmt.Errorf("%d bytes is no record", st.Size()))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return errs.New(errs.Internal, "%s record: %w", s.Kind, err)
	}
	return s.Decode(path, b, v)
}

// Decode is Read of bytes; where is named in messages.
func (s Schema) Decode(where string, b []byte, v any) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return s.damaged(where, fmt.Errorf("it is not JSON: %w", err))
	}
	if head.Format < 1 {
		return s.damaged(where, errors.New("no format number"))
	}
	if head.Format > s.Format {
		return errs.New(errs.Unsupported, "%s record %s has format %d and this brood knows up to %d: a newer brood wrote it, use that one",
			s.Kind, where, head.Format, s.Format)
	}
	if head.Format < s.Format {
		var err error
		if b, err = s.migrate(where, b, head.Format); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return s.damaged(where, err)
	}
	return nil
}

func (s Schema) damaged(where string, why error) error {
	if s.Repair != "" {
		why = fmt.Errorf("%w: %s", why, s.Repair)
	}
	return errs.New(errs.DataLoss, "%s record %s is damaged: %w", s.Kind, where, why)
}

func (s Schema) migrate(where string, b []byte, from int) ([]byte, error) {
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, errs.New(errs.DataLoss, "%s record %s is damaged: %w", s.Kind, where, err)
	}
	for n := from; n < s.Format; n++ {
		step, ok := s.Migrate[n]
		if !ok {
			return nil, errs.New(errs.Unsupported, "%s record %s has format %d, which this brood no longer reads", s.Kind, where, from)
		}
		if err := step(m); err != nil {
			return nil, errs.New(errs.DataLoss, "%s record %s, format %d: %w", s.Kind, where, n, err)
		}
	}
	return json.Marshal(m)
}
