package checkpoint

import (
	"slices"
	"strings"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// Damaged is a checkpoint that cannot be read: it can be removed or replaced,
// and nothing else.
type Damaged struct {
	Name   id.Name
	Record Record // zero when that cannot be read either
	Why    error
}

// Lost says that the files are not whole, now and later. Else the checkpoint
// may be fine and only out of this brood's reach: written by a newer one, or on
// a disk that fails.
func (d Damaged) Lost() bool { return errs.Is(d.Why, errs.DataLoss) }

// Damaged returns the checkpoints that cannot be read, by name.
func (s *Store) Damaged() []Damaged {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad []Damaged
	for name, e := range s.entries {
		if e.err != nil {
			bad = append(bad, Damaged{Name: name, Record: e.Record, Why: e.err})
		}
	}
	slices.SortFunc(bad, func(a, b Damaged) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return bad
}

// IsDamaged says whether there is a checkpoint called name that cannot be read.
func (s *Store) IsDamaged(name id.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	return e != nil && e.err != nil
}

// refusal says what to do about one that cannot be read; nil when it can.
func (e *entry) refusal() error {
	if e.err == nil {
		return nil
	}
	return errs.New(errs.CodeOf(e.err), "checkpoint %s cannot be read: %w: remove it with `brood sb checkpoints rm %s`, or make it again with --replace", e.Name, e.err, e.Name)
}
