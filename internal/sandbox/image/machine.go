package image

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

// machine is where this machine's root is looked at; tests use a folder.
type machine struct {
	root string   // whose usr, etc and so on are shown
	ids  []string // files with an identity of the machine, below root
}

var thisMachine = machine{root: "/", ids: []string{"etc/machine-id", "var/lib/dbus/machine-id"}}

// Fingerprint tells machines apart for checkpoints of Host (F23). It is made
// of the machine's own identity, hashed because that is meant to stay
// private, and outlives reboots. A machine without one, such as a container,
// gets one for as long as this home exists.
func (s *Store) Fingerprint() (digest.Digest, error) {
	for _, name := range s.mach.ids {
		b, err := os.ReadFile(filepath.Join(s.mach.root, name))
		if b = bytes.TrimSpace(b); err == nil && len(b) >= 32 {
			return digest.Of(append([]byte("brood machine\n"), b...)), nil
		}
	}
	path := filepath.Join(s.dir, "machine")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(id.Random(16))
		err = home.DiskError(renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(s.dir)), "remember this machine")
	}
	if err != nil {
		return "", errs.New(errs.CodeOf(err), "identity of this machine: %w", err)
	}
	return digest.Of(append([]byte("brood machine\n"), b...)), nil
}
