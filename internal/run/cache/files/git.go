package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// repo is the git repository that a folder lies in.
type repo struct {
	top    string // its work tree
	gitDir string // where the index is
	common string // where config and info are
	idLen  int
	// unseen says that the index has a .gitattributes file that is not in the
	// work tree: git reads that one.
	unseen bool

	once    sync.Once
	filters *filters
}

// findRepo returns the repository of dir, nil when there is none.
func findRepo(dir string) *repo {
	for top := dir; ; top = filepath.Dir(top) {
		if r := openRepo(top); r != nil {
			return r
		}
		if top == filepath.Dir(top) {
			return nil
		}
	}
}

// openRepo returns the repository whose work tree begins at top.
func openRepo(top string) *repo {
	gitDir := filepath.Join(top, ".git")
	if b, err := content.ReadFile(gitDir, ".git", content.MaxText); err == nil {
		to, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), "gitdir: ")
		if !ok {
			return nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(top, to)
		}
		gitDir = to
	}
	if _, err := os.Stat(filepath.Join(gitDir, "HEAD")); err != nil {
		return nil
	}
	r := &repo{top: top, gitDir: gitDir, common: gitDir, idLen: 20}
	if b, err := content.ReadFile(filepath.Join(gitDir, "commondir"), "commondir", content.MaxText); err == nil {
		r.common = strings.TrimRight(string(b), "\r\n")
		if !filepath.IsAbs(r.common) {
			r.common = filepath.Join(gitDir, r.common)
		}
	}
	if b, err := content.ReadFile(filepath.Join(r.common, "config"), "config", content.MaxText); err == nil {
		for line := range strings.Lines(strings.ToLower(string(b))) {
			name, v, _ := strings.Cut(line, "=")
			if strings.TrimSpace(name) == "objectformat" && strings.TrimSpace(v) == "sha256" {
				r.idLen = 32
			}
		}
	}
	return r
}

// local are the variables that would make git look at another repository.
var local = []string{
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
	"GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES", "GIT_LITERAL_PATHSPECS",
	"GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS", "GIT_TRACE",
}

// command prepares git in dir. It works in a tree of another user as well:
// whoever runs the tasks of a workspace trusts its files.
func command(dir string, args ...string) *exec.Cmd {
	c := exec.Command("git", append([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false"}, args...)...)
	c.Dir = dir
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains(local, name) {
			c.Env = append(c.Env, kv)
		}
	}
	c.Env = append(c.Env, "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	return c
}

// git runs git to its end and returns what it wrote.
func git(ctx context.Context, dir string, stdin []byte, args ...string) ([]byte, error) {
	c := command(dir, args...)
	var out, text bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), &out, &text
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start git: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Process.Kill() })
	err := c.Wait()
	stop()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, strings.TrimSpace(text.String()))
	}
	return out.Bytes(), nil
}

// untracked lists the files below dir that git neither tracks nor ignores,
// relative to dir. A name that ends in "/" is a repository of its own.
func untracked(ctx context.Context, dir string) ([]string, error) {
	out, err := git(ctx, dir, nil, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return nulls(out), nil
}

func nulls(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// indexMost is the largest index that is read, in bytes: of ten million files.
const indexMost = 1 << 30

// index returns the entries of the repository's index and when it was written.
func (r *repo) index(ctx context.Context) ([]record, int64, error) {
	file := filepath.Join(r.gitDir, "index")
	for range 3 {
		before, err := os.Stat(file)
		if errors.Is(err, os.ErrNotExist) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		b, err := content.ReadFile(file, "git's index "+file, indexMost)
		if err != nil {
			return nil, 0, err
		}
		after, err := os.Stat(file)
		if err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
			continue // git replaced it meanwhile
		}
		all, err := parseIndex(b, r.idLen)
		if err != nil { // git reads what this package does not, or says what is wrong
			all, err = r.askIndex(ctx)
		}
		return all, before.ModTime().UnixNano(), err
	}
	return nil, 0, errs.New(errs.Unavailable, "git's index %s keeps changing: wait until git is done", file)
}

// below returns the entries below dir, relative to it.
func (r *repo) below(records []record, dir string) ([]record, error) {
	prefix, err := filepath.Rel(r.top, dir)
	if err != nil || prefix == "." {
		return records, err
	}
	var mine []record
	for _, e := range records {
		if rest, ok := strings.CutPrefix(e.path, prefix+"/"); ok {
			e.path = rest
			mine = append(mine, e)
		}
	}
	return mine, nil
}

// askIndex lets git read an index of a kind that this package does not.
func (r *repo) askIndex(ctx context.Context) ([]record, error) {
	out, err := git(ctx, r.top, nil, "ls-files", "-z", "--stage", "--debug")
	if err != nil {
		return nil, err
	}
	return parseDebug(out)
}

// parseDebug reads git ls-files -z --stage --debug: an entry, a zero, and five
// lines of stat data.
func parseDebug(b []byte) ([]record, error) {
	bad := errs.New(errs.DataLoss, "git ls-files --debug answered something unknown")
	var all []record
	for len(b) > 0 {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return nil, bad
		}
		head, path, ok := strings.Cut(string(b[:end]), "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 3 {
			return nil, bad
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		stage, err2 := strconv.ParseUint(f[2], 10, 2)
		if err != nil || err2 != nil {
			return nil, bad
		}
		r := record{path: path, mode: uint32(mode), id: f[1], stage: uint8(stage)}
		var lines [5]string
		b = b[end+1:]
		for i := range lines {
			nl := bytes.IndexByte(b, '\n')
			if nl < 0 {
				return nil, bad
			}
			lines[i], b = string(b[:nl]), b[nl+1:]
		}
		var dev, uid, gid uint32
		var flags string
		for i, want := range []struct {
			format string
			to     []any
		}{
			{"  ctime: %d:%d", []any{&r.ctime[0], &r.ctime[1]}},
			{"  mtime: %d:%d", []any{&r.mtime[0], &r.mtime[1]}},
			{"  dev: %d\tino: %d", []any{&dev, &r.ino}},
			{"  uid: %d\tgid: %d", []any{&uid, &gid}},
			{"  size: %d\tflags: %s", []any{&r.size, &flags}},
		} {
			if _, err := fmt.Sscanf(lines[i], want.format, want.to...); err != nil {
				return nil, bad
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// settings are what git's configuration says about reading the work tree.
type settings struct {
	autocrlf   bool
	fileMode   bool
	attributes string
}

func (r *repo) settings(ctx context.Context) settings {
	s := settings{fileMode: true}
	out, err := git(ctx, r.top, nil, "config", "-z", "--get-regexp", `^core\.(autocrlf|filemode|attributesfile)$`)
	if err != nil {
		return s // nothing is set
	}
	for _, kv := range nulls(out) {
		name, v, _ := strings.Cut(kv, "\n")
		off := slices.Contains([]string{"false", "no", "off", "0"}, strings.ToLower(v))
		switch strings.ToLower(name) {
		case "core.autocrlf":
			s.autocrlf = !off
		case "core.filemode":
			s.fileMode = !off
		case "core.attributesfile":
			s.attributes = v
		}
	}
	return s
}
