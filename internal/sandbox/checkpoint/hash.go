package checkpoint

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// hashFiles hashes all files below dir and makes them private, and durable
// when sync is set. Reading a file for its sum, reading it for its chunks and
// syncing it go on at once: the bytes are in memory, and hashing is what takes
// time.
func hashFiles(ctx context.Context, dir string, cuts map[string]Cut, sync bool) ([]File, error) {
	paths, err := listFiles(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(paths))
	for i, p := range paths {
		files[i] = File{Path: p, Cut: ByContent}
		if cuts[p] == ByOffset {
			files[i].Cut = ByOffset
		}
	}
	// Syncs wait for the disk and hashing for a core, so there may be more of
	// them than cores.
	const jobs = 3
	if err := errors.Join(life.Each(ctx, jobs*len(files), jobs*runtime.GOMAXPROCS(0), func(ctx context.Context, i int) error {
		f := &files[i/jobs]
		return withFile(ctx, filepath.Join(dir, filepath.FromSlash(f.Path)), func(file *os.File, r io.Reader) (err error) {
			switch i % jobs {
			case 0:
				if err = file.Chmod(0o600); err == nil && sync {
					err = file.Sync()
				}
			case 1:
				f.SHA256, f.Size, err = digest.Read(r)
			default:
				f.Chunks, err = chunksOf(r, f.Cut)
			}
			return err
		})
	})...); err != nil {
		return nil, err
	}
	for _, f := range files {
		var n int64
		for _, c := range f.Chunks {
			n += c.Size
		}
		if n != f.Size {
			return nil, errs.New(errs.DataLoss, "file %s of the capture changed while it was hashed", f.Path)
		}
	}
	return files, nil
}

// syncAll makes files and folders durable, at once: file systems put syncs
// that come together into one write of their journal.
func syncAll(paths ...string) error {
	return errors.Join(life.Each(context.Background(), len(paths), len(paths), func(_ context.Context, i int) error {
		f, err := os.Open(paths[i])
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})...)
}

// foldersIn returns dir and all folders below it.
func foldersIn(dir string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, p)
		}
		return err
	})
	return all, err
}

func withFile(ctx context.Context, path string, f func(*os.File, io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file, &ctxReader{ctx: ctx, r: file}), file.Close())
}

// ctxReader ends a long read with its context.
type ctxReader struct {
	ctx context.Context // of the one call that this reader lives for
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
