package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"brood/internal/base/digest"
	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/home"
	"brood/internal/run"
	"brood/internal/run/cache/entry"
	"brood/internal/run/cache/stamp"
)

// Before is what lay under the outputs before a task ran that owns what it adds.
type Before struct {
	files, links map[string]stamp.Stat
}

// Prepare is called before a task runs. It returns nil for all but those that
// own what they add, whose Save needs to know what was there.
func (c *Cache) Prepare(t *run.Task) (*Before, error) {
	if !c.adds(t) {
		return nil, nil
	}
	o, err := c.scan(t)
	if err != nil {
		return nil, err
	}
	b := &Before{files: map[string]stamp.Stat{}, links: map[string]stamp.Stat{}}
	for _, f := range o.files {
		b.files[f.path] = f.stat
	}
	for _, l := range o.links {
		b.links[l.path] = l.stat
	}
	return b, nil
}

// additive says that a task adds to the outputs of one that it waits for.
func (c *Cache) additive(t *run.Task) bool { return t.Additive || c.cfg.Additive(t.ID) }

// adds says that others write under a task's outputs too, before it or at some
// time: it owns what it adds.
func (c *Cache) adds(t *run.Task) bool { return c.additive(t) || len(c.cfg.Beside(t.ID)) > 0 }

// Clean removes what lies under a task's outputs, before it runs. Those that own
// what they add lose that.
func (c *Cache) Clean(t *run.Task) error {
	o, err := c.scan(t)
	if err != nil {
		return err
	}
	if c.adds(t) {
		o = c.owned(t, o)
	}
	return c.wipe(o, &entry.Entry{}, nil)
}

// Saving is a result to store.
type Saving struct {
	Task   *run.Task
	Key    run.Key
	Result run.Result
	// Log is all that the task wrote.
	Log io.Reader
	// Before is what Prepare returned.
	Before *Before
	// Turn is what Enter returned.
	Turn *Turn
}

// logMost is how much of a task's output is kept: its beginning and its end.
const logMost = entry.LogMost / 2

// Save stores the result of a task that succeeded. A result that cannot be
// stored is an error for the user's eyes, and leaves the store as it was. The
// upload to a shared cache happens later.
func (c *Cache) Save(ctx context.Context, s Saving) error {
	if !s.Result.OK() {
		return errs.New(errs.FailedPrecondition, "%s did not succeed: its result is not saved", s.Task.ID)
	}
	share := c.shared != nil && c.cfg.Shared.Write
	if !c.cfg.Local.Write && !share {
		return nil
	}
	if err := c.refuseReplacing(s.Key); err != nil {
		return fmt.Errorf("save the result of %s: %w", s.Task.ID, err)
	}
	e, o, err := c.gather(ctx, s)
	if err != nil {
		return fmt.Errorf("save the result of %s: %w", s.Task.ID, err)
	}
	if s.Turn != nil {
		s.Turn.made(e, o.files)
	}
	if c.cfg.Local.Write {
		if err := c.store.PutEntry(s.Key, e.Encode()); err != nil {
			return fmt.Errorf("save the result of %s: %w", s.Task.ID, err)
		}
	}
	if share {
		c.shared.upload(ctx, e, c.store)
	}
	return nil
}

// gather stores the contents and makes the entry of the outputs.
func (c *Cache) gather(ctx context.Context, s Saving) (*entry.Entry, *outputs, error) {
	o, err := c.scan(s.Task)
	if err != nil {
		return nil, nil, err
	}
	if len(o.other) > 0 {
		return nil, nil, errs.New(errs.Unsupported, "output %s is neither file, link nor folder: exclude it with a \"!\" glob", o.other[0])
	}
	if len(o.repos) > 0 {
		return nil, nil, errs.New(errs.Unsupported, "%s among the outputs is a repository, which is never restored: exclude it with a \"!\" glob", o.repos[0])
	}
	if err := c.refuseProjects(s, o); err != nil {
		return nil, nil, err
	}
	if c.adds(s.Task) {
		if o, err = c.added(s, o); err != nil {
			return nil, nil, err
		}
	} else {
		c.disown(s, o)
	}
	if err := c.refuseLinks(s.Task, o.links); err != nil {
		return nil, nil, err
	}
	o.sort()
	e := &entry.Entry{Key: s.Key, Task: s.Task.ID, Took: s.Result.Ended.Sub(s.Result.Began), Usage: s.Result.Usage}
	if e.Log, err = c.putLog(s.Log); err != nil {
		return nil, nil, err
	}
	for _, d := range o.dirs {
		if d.shared {
			continue
		}
		if !entry.Enterable(d.stat.Perm()) {
			return nil, nil, errs.New(errs.Unsupported, "output folder %s is closed to its owner: leave it open", d.path)
		}
		e.Dirs = append(e.Dirs, entry.Dir{Path: d.path, Perm: d.stat.Perm()})
	}
	for _, l := range o.links {
		to, err := os.Readlink(filepath.Join(c.cfg.Root, l.path))
		if err != nil {
			return nil, nil, home.DiskError(err, "output %s", l.path)
		}
		link := entry.Link{Path: l.path, Target: to}
		if !staysInside(link) {
			return nil, nil, errs.New(errs.Unsupported, "output %s is a link to %s: only relative links into the workspace are saved", l.path, to)
		}
		e.Links = append(e.Links, link)
	}
	e.Files, err = c.putFiles(ctx, o.files)
	return e, o, err
}

// refuseProjects refuses what a task wrote into other projects: a result has none
// of it, and a hit would not bring it.
func (c *Cache) refuseProjects(s Saving, o *outputs) error {
	if len(o.projects) == 0 {
		return nil
	}
	set, err := globs(s.Task)
	if err != nil {
		return err
	}
	for _, dir := range o.projects {
		name, err := c.wroteInto(dir, set, s.Result.Began)
		if err != nil {
			return home.DiskError(err, "outputs in %s", dir)
		}
		if name != "" {
			return errs.New(errs.Unsupported, "output %s lies in the project %s, and a result has nothing of other projects: let a task there write it, or exclude it with a \"!\" glob", name, dir)
		}
	}
	return nil
}

// added leaves of the outputs what the task's run made or changed, and what it
// did before. Of what lies beside that a task before it made all that it did not
// own; where only tasks beside it write, a file that nobody is known to have made
// may be its own, which its tool found right, or another's.
func (c *Cache) added(s Saving, o *outputs) (*outputs, error) {
	if s.Before == nil {
		return nil, errs.New(errs.Internal, "what lay under the outputs before was not looked at")
	}
	mine, first := &outputs{}, !c.additive(s.Task)
	seen, nobodys := map[string]bool{}, ""
	pick := func(now []found, was map[string]stamp.Stat) (kept []found) {
		for _, f := range now {
			seen[f.path] = true
			st, ok := was[f.path]
			owner := c.cfg.Stamps.Owner(f.path)
			switch {
			case !ok || st != f.stat || owner == string(s.Task.ID):
				c.cfg.Stamps.Own(f.path, string(s.Task.ID))
			case first && owner == "":
				nobodys = f.path
				continue
			default:
				continue
			}
			kept = append(kept, f)
		}
		return kept
	}
	mine.files, mine.links = pick(o.files, s.Before.files), pick(o.links, s.Before.links)
	if nobodys != "" {
		return nil, errs.New(errs.FailedPrecondition, "%s lay there before, and whether it is this task's or that of %s is not known: remove it once", nobodys, c.cfg.Beside(s.Task.ID)[0])
	}
	if who := c.dying(s.Task.ID); who != "" {
		return nil, errs.New(errs.FailedPrecondition, "%s was ended in the middle of writing there: run it first", who)
	}
	for _, was := range []map[string]stamp.Stat{s.Before.files, s.Before.links} {
		for name := range was {
			if !first && !seen[name] && c.cfg.Stamps.Owner(name) != string(s.Task.ID) {
				return nil, errs.New(errs.FailedPrecondition, "it removed %s, an output of a task before it: let it leave that alone, or not cache", name)
			}
		}
	}
	return mine, nil
}

// claim notes what an attempt wrote of which nothing is saved, so that it gets into
// the result of no task beside it.
func (c *Cache) claim(t *run.Task, began time.Time) error {
	o, err := c.scan(t)
	if err != nil {
		return err
	}
	since := began.Add(-stamp.Granule).UnixNano()
	for _, list := range [][]found{o.files, o.links} {
		for _, f := range list {
			if max(f.stat.CTime, f.stat.MTime) >= since {
				c.cfg.Stamps.Own(f.path, string(t.ID))
			}
		}
	}
	return nil
}

// disown leaves out what another task added earlier and this run did not write
// again.
func (c *Cache) disown(s Saving, o *outputs) {
	since := s.Result.Began.Add(-stamp.Granule).UnixNano()
	theirs := func(f found) bool {
		owner := c.cfg.Stamps.Owner(f.path)
		if owner == "" || owner == string(s.Task.ID) {
			return false
		}
		if f.stat.MTime < since {
			return true
		}
		c.cfg.Stamps.Own(f.path, "")
		return false
	}
	o.files, o.links = slices.DeleteFunc(o.files, theirs), slices.DeleteFunc(o.links, theirs)
}

// owned leaves of the outputs what the task added before.
func (c *Cache) owned(t *run.Task, o *outputs) *outputs {
	mine := &outputs{}
	pick := func(list []found) (kept []found) {
		for _, f := range list {
			if c.cfg.Stamps.Owner(f.path) == string(t.ID) {
				kept = append(kept, f)
			}
		}
		return kept
	}
	mine.files, mine.links = pick(o.files), pick(o.links)
	return mine
}

func (c *Cache) putFiles(ctx context.Context, list []found) ([]entry.File, error) {
	all := make([]entry.File, len(list))
	var inline int64
	small := make([]bool, len(list))
	for i, f := range list {
		if f.stat.Size <= entry.InlineMost && inline+f.stat.Size <= entry.InlineAll {
			small[i], inline = true, inline+f.stat.Size
		}
	}
	fails := life.Each(ctx, len(list), runtime.GOMAXPROCS(0), func(ctx context.Context, i int) error {
		content, err := c.putFile(ctx, list[i], small[i])
		all[i] = entry.File{Path: list[i].path, Perm: list[i].stat.Perm(), Content: content}
		return err
	})
	for i, err := range fails {
		if err != nil {
			return nil, home.DiskError(err, "output %s", list[i].path)
		}
	}
	return all, nil
}

// putFile stores a file and remembers its stamp. A file that changes meanwhile
// is an error: something writes to it still.
func (c *Cache) putFile(ctx context.Context, f found, inline bool) (entry.Content, error) {
	file := filepath.Join(c.cfg.Root, f.path)
	if d, ok := c.cfg.Stamps.Get(stamp.Digest, f.path, f.stat); ok && !inline && c.store.Has(digest.Digest(d)) {
		return entry.Content{Digest: digest.Digest(d), Size: f.stat.Size}, nil
	}
	started := time.Now()
	var content entry.Content
	var err error
	if inline {
		content, err = readSmall(file)
	} else {
		content, err = c.putBig(ctx, file)
	}
	if err != nil {
		return content, err
	}
	after, err := stamp.Of(file)
	if err != nil || after != f.stat || content.Size != f.stat.Size {
		return content, errors.Join(errs.New(errs.FailedPrecondition, "it still changes after its task ended"), err)
	}
	c.cfg.Stamps.Put(stamp.Digest, f.path, f.stat, string(content.Digest), started)
	return content, nil
}

func readSmall(file string) (entry.Content, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return entry.Content{}, err
	}
	if len(b) == 0 {
		b = []byte{}
	}
	return entry.Content{Digest: digest.Of(b), Size: int64(len(b)), Inline: b}, nil
}

func (c *Cache) putBig(ctx context.Context, file string) (entry.Content, error) {
	r, err := os.Open(file)
	if err != nil {
		return entry.Content{}, err
	}
	defer r.Close()
	d, n, err := c.store.Put(untilDone{ctx, r})
	return entry.Content{Digest: d, Size: n}, err
}

// untilDone reads until its context ends: a save of a large file need not be
// waited for.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// putLog stores a task's output; of a very long one the beginning and the end.
func (c *Cache) putLog(r io.Reader) (entry.Content, error) {
	if r == nil {
		r = bytes.NewReader(nil)
	}
	head, err := io.ReadAll(io.LimitReader(r, logMost/2))
	if err != nil {
		return entry.Content{}, err
	}
	var tail ring
	if _, err := io.Copy(&tail, r); err != nil {
		return entry.Content{}, err
	}
	log := head
	if tail.lost > 0 {
		log = fmt.Appendf(log, "\n[%s of output are left out]\n", home.Bytes(uint64(tail.lost)))
	}
	log = append(log, tail.bytes()...)
	if len(log) <= entry.InlineMost {
		return entry.Content{Digest: digest.Of(log), Size: int64(len(log)), Inline: append([]byte{}, log...)}, nil
	}
	d, n, err := c.store.Put(bytes.NewReader(log))
	return entry.Content{Digest: d, Size: n}, err
}

// ring keeps the last logMost/2 bytes written to it.
type ring struct {
	b    []byte
	at   int // where the oldest byte is, once b is full
	lost int64
}

func (r *ring) Write(p []byte) (int, error) {
	n := len(p)
	if free := logMost/2 - len(r.b); free > 0 {
		take := min(free, len(p))
		r.b = append(r.b, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		took := copy(r.b[r.at:], p)
		p, r.at, r.lost = p[took:], (r.at+took)%len(r.b), r.lost+int64(took)
	}
	return n, nil
}

func (r *ring) bytes() []byte { return append(append([]byte{}, r.b[r.at:]...), r.b[:r.at]...) }
