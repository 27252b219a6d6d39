package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/errs"
)

// maxMembers bounds what globs may find; a workspace of that many projects is
// a glob gone wrong.
const maxMembers = 1_000_000

// members returns the folders below root that the globs name and that hold the
// file want (empty: any folder), sorted, with slashes; "!" in front of a glob takes back. Folders
// named node_modules and .git are never entered.
func members(root string, globs []string, holds func(dir string) bool) ([]string, error) {
	dirs, _, err := membersAndLinks(root, globs, holds)
	return dirs, err
}

// membersAndLinks is members, and the links to packages that a glob's last
// segment would have found if links were followed.
func membersAndLinks(root string, globs []string, holds func(dir string) bool) (dirs, links []string, err error) {
	var include, exclude []string
	for _, g := range globs {
		out, is := strings.CutPrefix(g, "!")
		g = strings.TrimSuffix(strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(out)), "/"), "/")
		if !doublestar.ValidatePattern(g) {
			return nil, nil, errs.New(errs.InvalidArgument, "%q is no glob of folders", out)
		}
		if is {
			exclude = append(exclude, g)
		} else {
			for _, g := range expandBraces(g) { // ..{} is .. only now
				include = append(include, strings.TrimPrefix(path.Clean("/"+g), "/"))
			}
		}
	}
	f := finder{root: root, holds: holds, found: map[string]bool{}, linked: map[string]bool{}, seen: map[step]bool{}}
	for _, g := range include {
		if err := f.walk("", strings.Split(g, "/")); err != nil {
			return nil, nil, err
		}
	}
	kept := func(all map[string]bool) (list []string) {
		for dir := range all {
			if !slices.ContainsFunc(exclude, func(g string) bool { return excludes(g, dir) }) {
				list = append(list, dir)
			}
		}
		slices.Sort(list)
		return list
	}
	return kept(f.found), kept(f.linked), nil
}

// excludes says whether a glob takes the folder back: it names the folder, or
// all that is in it.
func excludes(glob, dir string) bool {
	return doublestar.MatchUnvalidated(glob, dir) || doublestar.MatchUnvalidated(glob, dir+"/package.json")
}

type finder struct {
	root  string
	holds func(dir string) bool
	found map[string]bool
	// linked are links to packages, which are not followed.
	linked map[string]bool
	// seen holds folders with what was left of the glob there: several ** in
	// one glob lead to the same place in many ways.
	seen map[step]bool
}

type step struct {
	dir  string
	rest string
}

// walk follows the segments of a glob from the folder dir; "" is the root.
// It is as deep as the glob, or as the tree below **.
func (f *finder) walk(dir string, segments []string) error {
	if len(f.found) > maxMembers {
		return errs.New(errs.ResourceExhausted, "the workspace's globs find more than %d folders: narrow them", maxMembers)
	}
	if len(segments) == 0 {
		if f.holds == nil || f.holds(filepath.Join(f.root, dir)) {
			f.found[orDot(dir)] = true
		}
		return nil
	}
	head, rest := segments[0], segments[1:]
	if head == "**" {
		at := step{dir, strings.Join(segments, "/")}
		if f.seen[at] {
			return nil
		}
		f.seen[at] = true
	}
	switch {
	case head == "" || head == ".":
		return f.walk(dir, rest)
	case head == "**":
		if err := f.walk(dir, rest); err != nil {
			return err
		}
		return f.each(dir, func(name string) error { return f.walk(path.Join(dir, name), segments) })
	case strings.ContainsAny(head, `*?[\{`):
		if len(rest) == 0 {
			f.noteLinks(dir, head)
		}
		return f.each(dir, func(name string) error {
			if !doublestar.MatchUnvalidated(head, name) {
				return nil
			}
			return f.walk(path.Join(dir, name), rest)
		})
	}
	return f.walk(path.Join(dir, head), rest)
}

// holding takes folders with a file of that name. One that is no regular file
// counts, so that whoever reads it refuses it.
func holding(name string) func(dir string) bool {
	return func(dir string) bool { return isThere(filepath.Join(dir, name)) }
}

// isFolder takes what is one: a glob may name what is not there.
func isFolder(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

func orDot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// each calls on for the folders in dir; links are not followed.
func (f *finder) each(dir string, on func(name string) error) error {
	entries, err := os.ReadDir(filepath.Join(f.root, dir))
	if err != nil {
		return nil //nolint:nilerr // not there, or no folder: nothing is found in it
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "node_modules" || e.Name() == ".git" {
			continue
		}
		if err := on(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// noteLinks finds the links in dir that the segment names and that lead to a
// package.
func (f *finder) noteLinks(dir, segment string) {
	entries, err := os.ReadDir(filepath.Join(f.root, dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.Type()&os.ModeSymlink != 0 && doublestar.MatchUnvalidated(segment, e.Name()) && isFile(filepath.Join(f.root, name, manifestName)) {
			f.linked[name] = true
		}
	}
}

// expandBraces writes {a,b} out, so that segments can be walked one by one.
// More than maxBraces alternatives stay as they are.
func expandBraces(glob string) []string {
	const maxBraces = 1000
	done, todo := []string{}, []string{glob}
	for len(todo) > 0 {
		g := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		open, end := innerBraces(g)
		if open < 0 || len(done)+len(todo) > maxBraces {
			done = append(done, g)
			continue
		}
		for _, option := range strings.Split(g[open+1:end], ",") {
			todo = append(todo, g[:open]+option+g[end+1:])
		}
	}
	return done
}

// innerBraces finds a pair of braces without one inside.
func innerBraces(g string) (open, end int) {
	open = -1
	for i := range len(g) {
		switch g[i] {
		case '{':
			open = i
		case '}':
			if open >= 0 {
				return open, i
			}
		}
	}
	return -1, -1
}
