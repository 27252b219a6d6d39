package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// Kind says what a holder is.
type Kind string

// The kinds of holders.
const (
	Fork     Kind = "fork"       // a sandbox that was started from it and still exists
	Transfer Kind = "transfer"   // a copy of it that is under way
	Child    Kind = "checkpoint" // a checkpoint that has it as its parent
	Pin      Kind = "pin"        // a user's word
	Batch    Kind = "batch"      // a batch that will fork it
)

var kinds = []Kind{Fork, Transfer, Child, Pin, Batch}

// Holder is one thing that keeps a checkpoint. Two with the same kind and id
// are the same one.
type Holder struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
}

// String is the holder for people.
func (h Holder) String() string {
	if h.Kind == Pin {
		return "a pin"
	}
	return string(h.Kind) + " " + h.ID
}

// Book is what is known of a machine's checkpoints. The zero Book is empty
// and ready.
type Book struct {
	entries map[digest.Digest]*entry
}

type entry struct {
	temp      bool
	condemned bool
	holders   map[Holder]bool
}

// Add makes a checkpoint known. A temporary one is removed with its last
// holder; it needs one before Due is asked. Adding a known one again changes
// nothing, except that one that was temporary and is now wanted for good
// stays.
func (b *Book) Add(d digest.Digest, temp bool) {
	e := b.entries[d]
	if e == nil {
		if b.entries == nil {
			b.entries = map[digest.Digest]*entry{}
		}
		b.entries[d] = &entry{temp: temp, holders: map[Holder]bool{}}
		return
	}
	e.temp = e.temp && temp
}

// Has reports whether a checkpoint is known.
func (b *Book) Has(d digest.Digest) bool { return b.entries[d] != nil }

// Temp reports whether a checkpoint is a temporary one.
func (b *Book) Temp(d digest.Digest) bool { return b.entries[d] != nil && b.entries[d].temp }

// Hold makes h keep d. It may be called twice. NotFound when d is unknown,
// FailedPrecondition when it is being deleted.
func (b *Book) Hold(d digest.Digest, h Holder) error {
	e := b.entries[d]
	switch {
	case h.ID == "" || !slices.Contains(kinds, h.Kind):
		return errs.New(errs.Internal, "holder %q of kind %q", h.ID, h.Kind)
	case e == nil:
		return errs.New(errs.NotFound, "checkpoint %s is not here", d.Short())
	case e.condemned:
		return errs.New(errs.FailedPrecondition, "checkpoint %s is being deleted", d.Short())
	}
	e.holders[h] = true
	return nil
}

// Drop ends h's hold on d. It may be called twice, and for an unknown d.
func (b *Book) Drop(d digest.Digest, h Holder) {
	if e := b.entries[d]; e != nil {
		delete(e.holders, h)
	}
}

// DropAll ends h's holds on everything: a sandbox, a batch or a child that is
// gone.
func (b *Book) DropAll(h Holder) {
	for _, e := range b.entries {
		delete(e.holders, h)
	}
}

// Keep drops all holders of one kind whose ids are not among alive: after a
// restart, what the machine still has is compared with the book.
func (b *Book) Keep(kind Kind, alive []string) {
	is := make(map[string]bool, len(alive))
	for _, a := range alive {
		is[a] = true
	}
	for _, e := range b.entries {
		for h := range e.holders {
			if h.Kind == kind && !is[h.ID] {
				delete(e.holders, h)
			}
		}
	}
}

// Holders returns what keeps d, by kind and id.
func (b *Book) Holders(d digest.Digest) []Holder {
	e := b.entries[d]
	if e == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(e.holders), func(g, h Holder) int {
		return cmp.Or(cmp.Compare(g.Kind, h.Kind), cmp.Compare(g.ID, h.ID))
	})
}

// Users names what keeps d, for people; "" when nothing does.
func (b *Book) Users(d digest.Digest) string { return list(b.Holders(d)) }

// Due returns the checkpoints that are to be deleted: temporary ones that
// nothing keeps, and condemned ones whose deletion was not finished.
func (b *Book) Due() []digest.Digest {
	var out []digest.Digest
	for d, e := range b.entries {
		if len(e.holders) == 0 && (e.temp || e.condemned) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// Condemn marks d before its files are deleted; it may be called twice.
// FailedPrecondition names what keeps it.
func (b *Book) Condemn(d digest.Digest) error {
	e := b.entries[d]
	if e == nil {
		return errs.New(errs.NotFound, "checkpoint %s is not here", d.Short())
	}
	if len(e.holders) > 0 {
		return errs.New(errs.FailedPrecondition, "checkpoint %s is in use by %s: remove that first", d.Short(), list(b.Holders(d)))
	}
	e.condemned = true
	return nil
}

// Spare takes Condemn back, when the deletion failed before anything was
// touched.
func (b *Book) Spare(d digest.Digest) {
	if e := b.entries[d]; e != nil {
		e.condemned = false
	}
}

// Forget removes a deleted checkpoint from the book, and it as the child of
// its parent. What a checkpoint that somebody still holds was deleted for, the
// caller must answer for: DataLoss.
func (b *Book) Forget(d digest.Digest) error {
	held := b.Holders(d)
	delete(b.entries, d)
	b.DropAll(Holder{Child, string(d)})
	if len(held) > 0 {
		return errs.New(errs.DataLoss, "checkpoint %s was deleted under %s", d.Short(), list(held))
	}
	return nil
}

func list(holders []Holder) string {
	const shown = 5
	var words []string
	for _, h := range holders[:min(len(holders), shown)] {
		words = append(words, h.String())
	}
	if more := len(holders) - shown; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}
