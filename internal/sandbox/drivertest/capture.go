package drivertest

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/id"
)

// captures is how many there are in a row.
const captures = 10

// capturesInARow: a capture costs the source nothing that stays, so the tenth
// is like the first.
func capturesInARow(w *world) {
	src := w.start("src", "state")
	src.ask("heap", "16") // much beside what comes and goes
	var sizes []int64
	var took []time.Duration
	for range captures {
		began := time.Now()
		im := src.capture()
		took = append(took, time.Since(began))
		sizes = append(sizes, w.size(im.dir))
		src.counting(im.count)
		w.check(os.RemoveAll(im.dir))
	}
	// Loose, and by the best of each half: other work of the machine is in it.
	early, late := slices.Min(took[:captures/2]), slices.Min(took[captures/2:])
	if late > 4*early && late > early+100*time.Millisecond {
		w.t.Errorf("the first captures take %s, the last %s: %v", early, late, took)
	}
	if first, last := sizes[0], sizes[captures-1]; last > first+first/2 {
		w.t.Errorf("captures grow: %d", sizes)
	}
}

// size is what a folder's files take.
func (w *world) size(dir string) int64 {
	w.t.Helper()
	var sum int64
	w.check(filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	}))
	return sum
}

// forkOfAFork: each generation is captured and goes on in the next.
func forkOfAFork(w *world) {
	b := w.start("generation-0", "state")
	trail := "0"
	for _, sb := range []id.Sandbox{"generation-1", "generation-2", "generation-3"} {
		b.want("done", "write", "/tmp/trail", trail)
		before := b.count()
		im := b.capture()
		w.check(w.Driver.Destroy(w.ctx, b.id))
		b = w.fork(sb, im)
		b.want(trail, "read", "/tmp/trail")
		if n := b.count(); n < before {
			w.t.Errorf("%s counts %d, its parent had %d", sb, n, before)
		}
		trail += "," + strings.TrimPrefix(string(sb), "generation-")
	}
}

// failedCapture: the source goes on as if nothing had been.
func failedCapture(w *world) {
	src := w.start("src", "state")
	src.ask("heap", "16")
	sum := src.ask("sum")
	taken := filepath.Join(w.dir, "taken")
	w.check(os.Mkdir(taken, 0o700))
	w.check(os.WriteFile(filepath.Join(taken, "something"), nil, 0o600))
	dirs := map[string]string{
		"a folder that is missing": filepath.Join(w.dir, "missing"),
		"a folder with something":  taken,
	}
	if w.Full != nil {
		if dir := w.Full(w.t); dir != "" {
			dirs["a disk that is too small"] = dir
		}
	}
	for what, dir := range dirs {
		before := src.count()
		src.freeze()
		err := w.Driver.Capture(w.ctx, src.id, dir)
		src.thaw()
		if err == nil {
			w.t.Errorf("a capture into %s succeeded", what)
		}
		src.counting(before)
		src.want(sum, "sum")
	}
	if _, err := os.Stat(filepath.Join(taken, "something")); err != nil {
		w.t.Errorf("a refused capture touched what was there: %v", err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	src.freeze()
	if err := w.Driver.Capture(ctx, src.id, w.empty()); !errs.Is(err, errs.Canceled) {
		w.t.Errorf("a capture whose caller is gone: %v", err)
	}
	src.thaw()
	f := w.fork("fork", src.capture())
	f.want(sum, "sum")
}

func (w *world) empty() string {
	w.t.Helper()
	dir, err := os.MkdirTemp(w.dir, "empty-")
	w.check(err)
	return dir
}

// damagedImage: a restore of what is not whole fails and leaves nothing, and
// its id can be used again.
func damagedImage(w *world) {
	src := w.start("src", "state")
	good := src.capture()
	cut := src.capture()
	w.check(os.Truncate(w.largest(cut.dir), w.size(cut.dir)/3))
	lacking := src.capture()
	w.check(os.Remove(w.largest(lacking.dir)))
	for what, dir := range map[string]string{
		"missing":             filepath.Join(w.dir, "missing"),
		"empty":               w.empty(),
		"cut short":           cut.dir,
		"lacking a file":      lacking.dir,
		"of no known content": w.scribbled(),
	} {
		im := good
		im.dir = dir
		if _, err := w.tryRestore(w.ctx, w.Driver, "fork", im); err == nil {
			w.t.Errorf("an image that is %s was restored", what)
		}
		if w.has("fork") {
			w.t.Errorf("a fork of an image that is %s is there", what)
		}
	}
	w.fork("fork", good)
	src.counting(good.count)
}

// largest returns the largest file of a folder.
func (w *world) largest(dir string) string {
	w.t.Helper()
	entries, err := os.ReadDir(dir)
	w.check(err)
	name, size := "", int64(-1)
	for _, e := range entries {
		info, err := e.Info()
		w.check(err)
		if info.Size() > size {
			name, size = filepath.Join(dir, e.Name()), info.Size()
		}
	}
	return name
}

// scribbled is a folder with the names that an image may have and nonsense in
// them.
func (w *world) scribbled() string {
	w.t.Helper()
	dir := w.empty()
	for _, name := range []string{"checkpoint.img", "pages.img", "pages_meta.img", "fake.img", "fake.sum"} {
		w.check(os.WriteFile(filepath.Join(dir, name), []byte("this is no image"), 0o600))
	}
	return dir
}
