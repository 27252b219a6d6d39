package files

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids are SHA-1
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"brood/internal/base/errs"
	"brood/internal/run/cache/stamp"
)

// blobID hashes content as git names it.
func newBlob(idLen int, size int64) hash.Hash {
	var h hash.Hash
	if idLen == sha256.Size {
		h = sha256.New()
	} else {
		h = sha1.New() //nolint:gosec // git's object ids are SHA-1
	}
	h.Write([]byte("blob " + strconv.FormatInt(size, 10) + "\x00"))
	return h
}

// reading is what a file told.
type reading struct {
	id      string
	returns bool // it has a carriage return
	stat    stamp.Stat
}

// read hashes a file or link. A file that changes while it is read is read
// again, a few times.
func read(path string, idLen int) (reading, error) {
	for range 5 {
		st, err := stamp.Of(path)
		if err != nil {
			return reading{}, err
		}
		c := reading{stat: st}
		if st.Link() {
			to, err := readLink(path)
			if err != nil {
				return reading{}, err
			}
			h := newBlob(idLen, int64(len(to)))
			h.Write(to)
			c.id = hex.EncodeToString(h.Sum(nil))
			return c, nil
		}
		whole, err := c.readFile(path, idLen)
		if err != nil {
			return reading{}, err
		}
		after, err := stamp.Of(path)
		if err != nil {
			return reading{}, err
		}
		if whole && after == st {
			return c, nil
		}
	}
	return reading{}, errs.New(errs.Unavailable, "%s keeps changing while it is read: stop what writes it", path)
}

func (c *reading) readFile(path string, idLen int) (whole bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := newBlob(idLen, c.stat.Size)
	buf := make([]byte, min(max(c.stat.Size, 512), 256<<10))
	var n int64
	for {
		got, err := f.Read(buf)
		b := buf[:got]
		h.Write(b)
		c.returns = c.returns || bytes.IndexByte(b, '\r') >= 0
		n += int64(got)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
	}
	c.id = hex.EncodeToString(h.Sum(nil))
	return n == c.stat.Size, nil
}

// identify gives every file its id.
func (s *Snapshot) identify(ctx context.Context) error {
	if err := s.markRewritten(ctx); err != nil {
		return err
	}
	var todo []int
	for i := range s.files {
		if s.files[i].ID == "" {
			todo = append(todo, i)
		}
	}
	return s.hash(ctx, s.files, todo)
}

// hash finds the ids of the files named by their indexes.
func (s *Snapshot) hash(ctx context.Context, all []File, todo []int) error {
	got := make([]reading, len(todo))
	fails := make([]error, len(todo))
	each(ctx, len(todo), func(n int) {
		f := &all[todo[n]]
		if id, ok := s.table.Get(f.stampKind(), f.Path, f.stat); ok {
			f.ID = id
			return
		}
		started := time.Now()
		got[n], fails[n] = read(s.abs(f.Path), s.idLen(f.repo))
		if fails[n] == nil {
			f.stat, f.settled = got[n].stat, got[n].stat.Settled(started)
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ask := map[int][]int{}
	for n, i := range todo {
		f := &all[i]
		switch {
		case errors.Is(fails[n], fs.ErrNotExist):
			f.ID = gone
			continue
		case errors.Is(fails[n], fs.ErrPermission):
			f.ID = unreadable
			continue
		case fails[n] != nil:
			return fails[n]
		}
		fl := s.filtersFor(ctx, f, got[n])
		if got[n].id == "" {
			continue // a stamp had it
		}
		f.ID = got[n].id
		if f.Mode != Link && !f.rewritten && fl.lineEnds && got[n].returns {
			ask[f.repo] = append(ask[f.repo], i)
		} else if f.settled && (f.rewritten || !got[n].returns) {
			s.table.Force(f.stampKind(), f.Path, f.stat, f.ID)
		}
	}
	for repo, list := range ask {
		s.askIDs(ctx, repo, all, list)
	}
	return ctx.Err()
}

// stampKind keeps the ids of bytes apart from those of what git would record.
func (f *File) stampKind() stamp.Kind {
	if f.rewritten {
		return stamp.Bytes
	}
	return stamp.Blob
}

// filtersFor returns what filters a file, asking git only when it matters: a
// stamp holds ids of files that no filter changed. It also settles which mode
// the file has where the file system has no executable bit.
func (s *Snapshot) filtersFor(ctx context.Context, f *File, c reading) *filters {
	if f.Mode == Link || c.id == "" && f.recorded == "" {
		return plainFiles
	}
	fl := s.filtersOf(ctx, f.repo)
	switch {
	case fl.fileMode:
	case f.recorded != "":
		f.Mode = f.recorded
	case !f.Tracked:
		f.Mode = Regular
	}
	f.recorded = ""
	return fl
}

// gone is the id of a file that vanished while the snapshot was taken,
// unreadable of one that this user may not read.
const (
	gone       = "gone"
	unreadable = "unreadable"
)

func (s *Snapshot) idLen(repo int) int {
	if repo < 0 {
		return sha1.Size
	}
	return s.repos[repo].idLen
}

// askIDs lets git hash files as they are with its line ends. Where git cannot,
// the ids of the bytes stand: they are nobody else's, so the worst is a miss.
func (s *Snapshot) askIDs(ctx context.Context, repo int, all []File, list []int) {
	var in bytes.Buffer
	for _, i := range list {
		rel, err := filepath.Rel(s.repos[repo].top, s.abs(all[i].Path))
		if err != nil {
			return
		}
		in.WriteString(quote(rel) + "\n")
	}
	out, err := git(ctx, s.repos[repo].top, in.Bytes(), "hash-object", "--stdin-paths")
	ids := strings.Fields(string(out))
	if err != nil || len(ids) != len(list) {
		return
	}
	for n, i := range list {
		all[i].ID = ids[n]
	}
}

// quote writes a path as git reads it from a line.
func quote(name string) string {
	plain := !strings.HasPrefix(name, `"`)
	for i := range len(name) {
		plain = plain && name[i] >= ' ' && name[i] < 127
	}
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 127:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
