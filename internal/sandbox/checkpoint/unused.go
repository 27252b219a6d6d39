package checkpoint

import (
	"brood/internal/base/id"
	"brood/internal/home"
)

// WhenUnused is what a record names in place of a batch when somebody asked to
// delete the checkpoint as soon as nothing needs it.
const WhenUnused id.Batch = "when-unused"

// DeleteWhenUnused marks a checkpoint to go with the last thing that needs it.
// Whoever knows what needs it deletes it then.
func (s *Store) DeleteWhenUnused(name id.Name) error {
	return s.amend(name, home.Durable, func(r *Record) { r.Temporary = WhenUnused })
}
