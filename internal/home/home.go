package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"brood/internal/base/errs"
)

// Home is the folder that one daemon or run keeps its state in.
type Home struct{ dir string }

// Default returns $BROOD_HOME, or ~/.brood.
func Default() (string, error) {
	if dir := os.Getenv("BROOD_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", errs.New(errs.Unsupported, "no home folder is known: set BROOD_HOME (%w)", err)
	}
	return filepath.Join(user, ".brood"), nil
}

// At names the home at dir without touching the disk.
func At(dir string) *Home { return &Home{dir: dir} }

// Open claims the home at dir (mode 0700; see Claim) and makes its folders.
func Open(dir string) (*Home, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := Claim(dir); err != nil {
		return nil, err
	}
	h := At(dir)
	for _, d := range []string{h.Sandboxes(), h.Checkpoints(), h.Batches(), h.Images(), h.Runtimes(), h.Run(), h.Logs()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, errs.New(errs.Unsupported, "home folder: %w", err)
		}
	}
	return h, nil
}

// Dir returns the home's own path, absolute.
func (h *Home) Dir() string { return h.dir }

// Sandboxes is where every sandbox has a folder, by id.
func (h *Home) Sandboxes() string { return filepath.Join(h.dir, "sandboxes") }

// Checkpoints is where every checkpoint has a folder, by name.
func (h *Home) Checkpoints() string { return filepath.Join(h.dir, "checkpoints") }

// Batches is where every batch has a folder, by id.
func (h *Home) Batches() string { return filepath.Join(h.dir, "batches") }

// Images holds the read-only filesystem images, by digest.
func (h *Home) Images() string { return filepath.Join(h.dir, "images") }

// Runtimes holds the drivers' programs, by content hash.
func (h *Home) Runtimes() string { return filepath.Join(h.dir, "runtimes") }

// Programs holds the whole brood program, by content hash.
func (h *Home) Programs() string { return filepath.Join(h.dir, "programs") }

// Run holds what means nothing after a reboot: sockets, runtime state.
func (h *Home) Run() string { return filepath.Join(h.dir, "run") }

// Logs holds the daemon's own log files.
func (h *Home) Logs() string { return filepath.Join(h.dir, "logs") }

// Socket is the daemon's Unix socket.
func (h *Home) Socket() string { return filepath.Join(h.dir, "brood.sock") }

// Discovery is the file that tells clients how to reach the daemon.
func (h *Home) Discovery() string { return filepath.Join(h.dir, "daemon.json") }

// RemoveDebris deletes the entries of dir that drop names: what a killed
// process left half made.
func RemoveDebris(dir string, drop func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all error
	for _, e := range entries {
		if drop(e.Name()) {
			all = errors.Join(all, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return all
}
