package checkpoint

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
)

// hashFiles syncs and hashes all files below dir and makes them private. A
// file's sum and its chunks are found by two readers at once: the bytes are
// in memory, hashing is what takes time.
func hashFiles(ctx context.Context, dir string, cuts map[string]Cut) ([]File, error) {
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
	jobs := 2 * len(files)
	if err := errors.Join(life.Each(ctx, jobs, runtime.GOMAXPROCS(0), func(ctx context.Context, i int) error {
		f := &files[i/2]
		return withFile(ctx, filepath.Join(dir, filepath.FromSlash(f.Path)), func(file *os.File, r io.Reader) (err error) {
			if i%2 == 1 {
				f.Chunks, err = chunksOf(r, f.Cut)
				return err
			}
			if err := errors.Join(file.Chmod(0o600), file.Sync()); err != nil {
				return err
			}
			f.SHA256, f.Size, err = digest.Read(r)
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
	return files, syncDirs(dir)
}

// syncDirs makes the names of the files durable.
func syncDirs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, syncDirs(filepath.Join(dir, e.Name())))
		}
	}
	f, e := os.Open(dir)
	if e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, f.Sync(), f.Close())
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
	ctx context.Context //nolint:containedctx // lives as long as one call
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
