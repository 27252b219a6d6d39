package payload

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/home"
)

//go:embed data
var data embed.FS

// Runtime is the carried runtime's id: its content hash, which is also the
// version its checkpoints name.
func Runtime() (id.Runtime, error) {
	b, err := read("brood-runtime.id")
	if err != nil {
		return "", err
	}
	return id.Runtime(strings.TrimSpace(string(b))), nil
}

// Guest returns the guest program and its digest.
func Guest() ([]byte, digest.Digest, error) {
	b, err := read("brood-guest")
	if err != nil {
		return nil, "", err
	}
	return b, guestDigest(), nil
}

var guestDigest = sync.OnceValue(func() digest.Digest {
	b, _ := read("brood-guest") // Guest has read it
	return digest.Of(b)
})

func read(name string) ([]byte, error) {
	b, err := data.ReadFile("data/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errs.New(errs.Unsupported, "this brood was built without %s: build it with `make build`", name)
	}
	return b, err
}

// RuntimePath is where the runtime called rt lies in h.
func RuntimePath(h *home.Home, rt id.Runtime) string {
	return filepath.Join(h.Runtimes(), string(rt), "brood-runtime")
}

// InstallRuntime writes the carried runtime into h unless it is there, and
// returns its id and path.
func InstallRuntime(h *home.Home) (id.Runtime, string, error) {
	rt, err := Runtime()
	if err != nil {
		return "", "", err
	}
	if !id.Plain(string(rt)) {
		return "", "", errs.New(errs.Internal, "the carried runtime's id %.80q is not a hash: run `make build`", rt)
	}
	path := RuntimePath(h, rt)
	size, err := sizeOf("brood-runtime")
	if err != nil {
		return "", "", err
	}
	if st, err := os.Stat(path); err == nil && st.Size() == size {
		return rt, path, nil
	}
	b, err := read("brood-runtime")
	if err != nil {
		return "", "", err
	}
	return rt, path, install(path, b)
}

func sizeOf(name string) (int64, error) {
	st, err := fs.Stat(data, "data/"+name)
	if err != nil {
		_, err = read(name)
		return 0, err
	}
	return st.Size(), nil
}

// install writes an executable by rename: another process may run the one
// that is there.
func install(path string, b []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err = f.Write(b); err == nil {
		err = f.Chmod(0o755)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errs.New(errs.InsufficientDisk, "write the runtime to %s: %w", filepath.Dir(path), err)
	}
	return os.Rename(f.Name(), path)
}
