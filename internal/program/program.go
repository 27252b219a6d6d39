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

	"github.com/gofrs/flock"
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
	// stampSuffix is that of a file beside a program: how it was when it was last
	// found sound.
	stampSuffix = ".whole"
	lockName    = ".lock"
)

// Become replaces this process by the whole program, with the arguments and
// the environment that this one was given; the whole program sees the path of
// this one as its name. It writes it into h where it is not there yet, or not
// whole. It returns only when that fails.
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
		if errors.Is(err, fs.ErrPermission) {
			return errs.New(errs.FailedPrecondition, "start %s: %w: the folder may be mounted noexec; choose another one with --home or BROOD_HOME", path, err)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another version has just dropped it
			return errs.New(errs.FailedPrecondition, "start %s: %w", path, err)
		}
	}
	return errs.New(errs.Unavailable, "%s is removed as soon as it is written: which program does that?", h.Programs())
}

// Install writes the whole program into h unless it is there, and returns its
// path. Of several that do so at once one writes.
func Install(h *home.Home) (string, error) {
	want, err := carried()
	if err != nil {
		return "", err
	}
	if err := home.Claim(h.Dir()); err != nil { // nothing is started out of a folder of others
		return "", err
	}
	path := filepath.Join(h.Programs(), prefix+want.hash[:16])
	if stamped(path, want) {
		return path, nil
	}
	if err := os.MkdirAll(h.Programs(), 0o700); err != nil {
		return "", home.DiskError(err, "programs folder")
	}
	lock := flock.New(filepath.Join(h.Programs(), lockName))
	if err := lock.Lock(); err != nil {
		return "", home.DiskError(err, "programs folder")
	}
	err = install(path, want)
	return path, errors.Join(err, lock.Unlock())
}

// install is Install for the one that holds the lock.
func install(path string, want carriage) error {
	if stamped(path, want) || sound(path, want) {
		return stamp(path)
	}
	// No other writes now: what is half written was left behind.
	if err := tidy(filepath.Dir(path), filepath.Base(path)); err != nil {
		return home.DiskError(err, "programs folder")
	}
	if err := write(path, want.hash); err != nil {
		return home.DiskError(err, "write this program to %s", filepath.Dir(path))
	}
	return stamp(path)
}

// stamped reports whether the program is there as it was when it was found
// sound, without reading it.
func stamped(path string, want carriage) bool {
	info, err := os.Lstat(path)
	if err != nil || !private(info) || info.Size() != want.size {
		return false
	}
	b, err := os.ReadFile(path + stampSuffix)
	return err == nil && string(b) == stampOf(info)
}

// private reports whether a file is a program that nobody else can write.
// Whose the folder is Claim has checked.
func private(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Mode().Perm()&0o122 == 0o100
}

// sound reads the program.
func sound(path string, want carriage) bool {
	info, err := os.Lstat(path)
	if err != nil || !private(info) || info.Size() != want.size {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return err == nil && hex.EncodeToString(sum.Sum(nil)) == want.hash
}

func stampOf(info fs.FileInfo) string {
	return fmt.Sprintf("%d %d\n", info.Size(), info.ModTime().UnixNano())
}

// stamp notes that the program is sound.
func stamp(path string) error {
	info, err := os.Lstat(path)
	if err == nil {
		err = renameio.WriteFile(path+stampSuffix, []byte(stampOf(info)), 0o600, renameio.WithTempDir(filepath.Dir(path)))
	}
	return home.DiskError(err, "note that %s is whole", path)
}

// carriage is what `make build` packed.
type carriage struct {
	hash string
	size int64
}

func carried() (c carriage, err error) {
	b, err := data.ReadFile(about)
	if errors.Is(err, fs.ErrNotExist) {
		return c, errs.New(errs.Unsupported, "this brood was built with runs alone: for sandboxes and shared caches build it with `make build`")
	}
	if err != nil {
		return c, err
	}
	if _, err := fmt.Sscanf(string(b), "%s %d", &c.hash, &c.size); err != nil || len(c.hash) != 2*sha256.Size || !id.Plain(c.hash) {
		return c, errs.New(errs.Internal, "%s is damaged (%.80q): run `make build`", about, b)
	}
	return c, nil
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

// tidy drops all programs but the newest others of own, what a killed process
// left half written, and what lies where own belongs.
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
		if err != nil || e.Name() == lockName || strings.HasSuffix(e.Name(), stampSuffix) {
			continue // gone meanwhile, or goes with its program
		}
		o := other{e.Name(), info.ModTime()}
		if strings.HasPrefix(o.name, prefix) && o.name != own {
			others = append(others, o)
		} else {
			drop = append(drop, o)
		}
	}
	slices.SortFunc(others, func(a, b other) int { return b.since.Compare(a.since) })
	drop = append(drop, others[min(kept, len(others)):]...)
	var all error
	for _, o := range drop {
		path := filepath.Join(dir, o.name)
		all = errors.Join(all, os.RemoveAll(path), os.RemoveAll(path+stampSuffix))
	}
	return all
}
