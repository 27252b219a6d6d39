package files

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

// rule is one line of a .gitignore file.
type rule struct {
	dir      string // the folder that the file is in, relative to the root
	glob     string
	negative bool
	folders  bool // it means folders only
	anywhere bool // it means a name at any depth
}

// parseIgnore reads a .gitignore file of dir (gitignore(5)).
func parseIgnore(dir, text string) []rule {
	var all []rule
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if t := strings.TrimRight(line, " "); !strings.HasSuffix(t, `\`) {
			line = t
		}
		if line == "" || line[0] == '#' {
			continue
		}
		r := rule{dir: dir}
		line, r.negative = strings.CutPrefix(line, "!")
		line, r.folders = strings.CutSuffix(line, "/")
		r.anywhere = !strings.Contains(line, "/")
		r.glob = strings.TrimPrefix(line, "/")
		if r.glob != "" && doublestar.ValidatePattern(r.glob) {
			all = append(all, r)
		}
	}
	return all
}

func (r rule) match(name string, folder bool) bool {
	if r.folders && !folder {
		return false
	}
	rest := name
	if r.dir != "" {
		var ok bool
		if rest, ok = strings.CutPrefix(name, r.dir+"/"); !ok {
			return false
		}
	}
	if r.anywhere {
		rest = path.Base(rest)
	}
	return doublestar.MatchUnvalidated(r.glob, rest)
}

// ignored says what the last rule that matches says.
func ignored(rules []rule, name string, folder bool) bool {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].match(name, folder) {
			return !rules[i].negative
		}
	}
	return false
}

// walk lists the files below dir (relative to root), as far as nothing ignores
// them.
func walk(root, dir string, rules []rule, add func(name string)) error {
	at := filepath.Join(root, dir)
	b, err := content.ReadFile(filepath.Join(at, ".gitignore"), path.Join(dir, ".gitignore"), content.MaxText)
	switch {
	case err == nil:
		rules = append(rules[:len(rules):len(rules)], parseIgnore(dir, string(b))...)
	case errs.Is(err, errs.InvalidArgument):
		return err
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if never(e.Name()) || ignored(rules, name, e.IsDir()) {
			continue
		}
		switch {
		case e.IsDir():
			if err := walk(root, name, rules, add); err != nil {
				return err
			}
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0:
			add(name)
		}
	}
	return nil
}

// Private is the folder in a workspace's root where brood stages outputs. It
// is never input or output.
const Private = ".brood"

// never says that no input has this name or lies below it.
func never(base string) bool { return base == ".git" || base == "node_modules" || base == Private }
