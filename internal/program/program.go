package program

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

//go:embed data
var data embed.FS

const (
	packed = "data/brood-full.zst"
	about  = "data/brood-full.id" // hash and size of what is packed
	prefix = "brood-"
	// kept is how many programs of other versions stay: whoever uses two
	// versions in turns does not write one at each start.
	kept = 2
	// abandoned is the age at which a half-written program has no writer any
	// more.
	abandoned = time.Hour
)

// Become replaces this process by the whole program, with the arguments and
// the environment that this one was given; the whole program sees the path of
// this one as its name. It writes it into h where it is not there yet. It
// returns only when that fails.
func Become(h *home.Home, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argv := append([]string{self}, args...)
	for range 3 {
		path, err := Install(h)
		if err != nil {
			return err
		}
		err = syscall.Exec(path, argv, os.Environ())
		if !errors.Is(err, fs.ErrNotExist) { // another version has just dropped it
			return errs.New(errs.FailedPrecondition, "start %s: %w: is the folder mounted noexec?", path, err)
		}
	}
	return errs.New(errs.Unavailable, "%s is removed as soon as it is written: which program does that?", h.Programs())
}

// Install writes the whole program into h unless it is there, and returns its
// path.
func Install(h *home.Home) (string, error) {
	hash, size, err := carried()
	if err != nil {
		return "", err
	}
	path := filepath.Join(h.Programs(), prefix+hash[:16])
	if st, err := os.Stat(path); err == nil && st.Size() == size {
		return path, nil
	}
	if err := home.Claim(h.Dir()); err != nil {
		return "", err
	}
	if err := os.MkdirAll(h.Programs(), 0o700); err != nil {
		return "", home.DiskError(err, "programs folder")
	}
	if err := write(path, hash); err != nil {
		return "", home.DiskError(err, "write this program to %s", h.Programs())
	}
	return path, tidy(h.Programs(), filepath.Base(path))
}

// carried is what `make build` packed.
func carried() (hash string, size int64, err error) {
	b, err := data.ReadFile(about)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, errs.New(errs.Unsupported, "this brood was built with runs alone: for sandboxes and shared caches build it with `make build`")
	}
	if err != nil {
		return "", 0, err
	}
	if _, err := fmt.Sscanf(string(b), "%s %d", &hash, &size); err != nil || len(hash) != 2*sha256.Size || !id.Plain(hash) {
		return "", 0, errs.New(errs.Internal, "%s is damaged (%.80q): run `make build`", about, b)
	}
	return hash, size, nil
}

func write(path, hash string) (err error) {
	b, err := data.ReadFile(packed)
	if err != nil {
		return err
	}
	z, err := zstd.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o755))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Cleanup()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), z); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != hash {
		return errs.New(errs.DataLoss, "what is packed has the hash %s and not %s: this brood is damaged, build or download it again", got, hash)
	}
	return f.CloseAtomicallyReplace()
}

// tidy drops all programs but own and the newest others, and what a killed
// process left half written.
func tidy(dir, own string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type other struct {
		name  string
		since time.Time
	}
	var others, drop []other
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() == own {
			continue // gone meanwhile, or ours
		}
		o := other{e.Name(), info.ModTime()}
		switch {
		case strings.HasPrefix(o.name, prefix):
			others = append(others, o)
		case time.Since(o.since) > abandoned:
			drop = append(drop, o)
		}
	}
	slices.SortFunc(others, func(a, b other) int { return b.since.Compare(a.since) })
	drop = append(drop, others[min(kept, len(others)):]...)
	var all error
	for _, o := range drop {
		all = errors.Join(all, os.RemoveAll(filepath.Join(dir, o.name)))
	}
	return all
}
