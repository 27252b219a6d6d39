package lease

import (
	"encoding/json"
	"maps"
	"slices"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
)

// stateFormat is the version of the written book.
const stateFormat = 1

type stored struct {
	Format      int           `json:"format"`
	Checkpoints []storedEntry `json:"checkpoints"`
}

type storedEntry struct {
	Digest    digest.Digest `json:"digest"`
	Temp      bool          `json:"temp,omitempty"`
	Condemned bool          `json:"condemned,omitempty"`
	Holders   []Holder      `json:"holders,omitempty"`
}

// MarshalJSON writes the book, always in the same order.
func (b *Book) MarshalJSON() ([]byte, error) {
	s := stored{Format: stateFormat, Checkpoints: []storedEntry{}}
	for _, d := range slices.Sorted(maps.Keys(b.entries)) {
		e := b.entries[d]
		s.Checkpoints = append(s.Checkpoints, storedEntry{d, e.temp, e.condemned, b.Holders(d)})
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads a book. One of a newer format is Unsupported, one that
// contradicts itself DataLoss; b is then unchanged.
func (b *Book) UnmarshalJSON(data []byte) error {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return errs.New(errs.DataLoss, "book of leases is not readable: %w", err)
	}
	if version.Format != stateFormat {
		return errs.New(errs.Unsupported, "book of leases has format %d, this brood reads %d: use the brood that wrote it, or a newer one", version.Format, stateFormat)
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return errs.New(errs.DataLoss, "book of leases is not readable: %w", err)
	}
	read := Book{entries: map[digest.Digest]*entry{}}
	for _, c := range s.Checkpoints {
		if _, err := digest.Parse(string(c.Digest)); err != nil {
			return errs.New(errs.DataLoss, "book of leases: %w", err)
		}
		if read.Has(c.Digest) {
			return errs.New(errs.DataLoss, "book of leases has checkpoint %s twice", c.Digest.Short())
		}
		read.Add(c.Digest, c.Temp)
		for _, h := range c.Holders {
			if err := read.Hold(c.Digest, h); err != nil {
				return errs.New(errs.DataLoss, "book of leases: %w", err)
			}
		}
		if c.Condemned && len(c.Holders) > 0 {
			return errs.New(errs.DataLoss, "book of leases: checkpoint %s is condemned and held", c.Digest.Short())
		}
		read.entries[c.Digest].condemned = c.Condemned
	}
	*b = read
	return nil
}
