package checkpoint

import (
	"path/filepath"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/id"
	"brood/internal/home"
)

// Names of a checkpoint's entries.
const (
	manifestName = "manifest.json"
	recordName   = "record.json"
	filesName    = "files"
	guestName    = "guest.json" // among the files
)

// Record is what may change about a checkpoint, and is not part of it.
type Record struct {
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"` // last restored
	Pinned  bool      `json:"pinned,omitempty"`
	// Temporary names the batch that this checkpoint was made for and goes
	// with.
	Temporary id.Batch `json:"temporary,omitempty"`
	// Boot is set on one that was not synced: the boot of the machine since
	// which it is surely whole. After another it is hashed again.
	Boot string `json:"boot,omitempty"`
	// Copy says that it was made elsewhere and can be fetched again.
	Copy bool `json:"copy,omitempty"`
	// Source names the sandbox it was taken of.
	Source string `json:"source,omitempty"`
}

var recordSchema = home.Schema{Kind: "checkpoint", Format: 1}

// Checkpoint is one checkpoint of this machine. It is a value: what changes
// later does not show in it.
type Checkpoint struct {
	Name     id.Name
	Digest   digest.Digest
	Dir      string   // the folder with the driver's files
	Manifest Manifest // without the chunks; see Store.Manifest
	Record   Record
}

// Size returns the bytes of all files.
func (c Checkpoint) Size() int64 { return c.Manifest.Size() }

// GuestFile is where the guest's facts lie: they hold the secret of the
// guest's channel, so they are a file of mode 0600 and no part of the
// manifest's text.
func (c Checkpoint) GuestFile() string { return filepath.Join(c.Dir, guestName) }
