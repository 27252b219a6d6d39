package files

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"brood/internal/base/content"
	"brood/internal/base/errs"
)

const attributesName = ".gitattributes"

// filters says what git does to the files of a repository before it hashes them.
type filters struct {
	settings
	lineEnds bool // files with carriage returns may change
	rewrites bool // some files are recorded as other bytes than lie there
}

// rewriting are the attributes that let git record other bytes than lie in the
// work tree, line ends aside.
var rewriting = []string{"filter", "ident", "working-tree-encoding"}

// plainFiles is what a tree without git is filtered by: nothing.
var plainFiles = &filters{settings: settings{fileMode: true}}

// filtersOf asks once for each repository.
func (s *Snapshot) filtersOf(ctx context.Context, repo int) *filters {
	if repo < 0 {
		return plainFiles
	}
	r := s.repos[repo]
	r.once.Do(func() {
		f := &filters{settings: r.settings(ctx)}
		f.lineEnds = f.autocrlf
		f.learn(s.attributesFiles(repo)...)
		f.learn(userAttributes(f.attributes))
		r.filters = f
	})
	return r.filters
}

// attributesFiles are all gitattributes files of a repository but the user's.
func (s *Snapshot) attributesFiles(repo int) []string {
	r := s.repos[repo]
	list := []string{filepath.Join(r.common, "info", "attributes")}
	for _, dir := range systemDirs {
		list = append(list, filepath.Join(dir, "gitattributes"))
	}
	for _, file := range s.files {
		if file.repo == repo && strings.HasSuffix(file.Path, attributesName) && path.Base(file.Path) == attributesName {
			list = append(list, s.abs(file.Path))
		}
	}
	for dir := s.root; dir != r.top && dir != filepath.Dir(dir); { // above the workspace's root too
		dir = filepath.Dir(dir)
		list = append(list, filepath.Join(dir, attributesName))
	}
	return list
}

// systemDirs are where builds of git look for the system's files.
var systemDirs = []string{"/etc", "/usr/local/etc", "/opt/homebrew/etc"}

func userAttributes(set string) string {
	if home, ok := strings.CutPrefix(set, "~/"); ok {
		dir, _ := os.UserHomeDir()
		return filepath.Join(dir, home)
	}
	if set != "" {
		return set
	}
	return filepath.Join(userDir(), "attributes")
}

// userDir is git's folder of the user's own files.
func userDir() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		user, _ := os.UserHomeDir() // without one there is no such folder
		dir = filepath.Join(user, ".config")
	}
	return filepath.Join(dir, "git")
}

// learn reads gitattributes files, not who they are about: which attributes
// they speak of at all.
func (f *filters) learn(list ...string) {
	for _, file := range list {
		b, err := content.ReadFile(file, file, content.MaxText)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0][0] == '#' {
				continue
			}
			for _, w := range words[1:] {
				name, _, _ := strings.Cut(strings.TrimLeft(w, "-!"), "=")
				switch name {
				case "text", "eol", "crlf":
					f.lineEnds = true
				case rewriting[0], rewriting[1], rewriting[2]:
					f.rewrites = true
				}
			}
		}
	}
}

// mayRewrite says whether any file of a repository may be recorded as other
// bytes than lie there. It runs git only where the configuration may name a
// gitattributes file.
func (s *Snapshot) mayRewrite(ctx context.Context, repo int) bool {
	r := s.repos[repo]
	if r.unseen {
		return true
	}
	var f filters
	f.learn(s.attributesFiles(repo)...)
	if f.rewrites {
		return true
	}
	if r.namesAttributes() {
		return s.filtersOf(ctx, repo).rewrites
	}
	f.learn(userAttributes(""))
	return f.rewrites
}

// namesAttributes says that core.attributesFile may be set.
func (r *repo) namesAttributes() bool {
	says := func(text string) bool {
		text = strings.ToLower(text)
		return strings.Contains(text, "attributesfile") || strings.Contains(text, "include")
	}
	home, _ := os.UserHomeDir() // without one there is no such file
	list := []string{
		filepath.Join(r.common, "config"), filepath.Join(r.gitDir, "config.worktree"),
		filepath.Join(home, ".gitconfig"), filepath.Join(userDir(), "config"),
	}
	for _, dir := range systemDirs {
		list = append(list, filepath.Join(dir, "gitconfig"))
	}
	for _, kv := range os.Environ() {
		name, v, _ := strings.Cut(kv, "=")
		switch {
		case name == "GIT_CONFIG_GLOBAL" || name == "GIT_CONFIG_SYSTEM":
			list = append(list, v)
		case strings.HasPrefix(name, "GIT_CONFIG_") && says(v):
			return true
		}
	}
	for _, file := range list {
		if b, err := content.ReadFile(file, file, content.MaxText); err == nil && says(string(b)) {
			return true
		}
	}
	return false
}

// markRewritten finds the files that git records as other bytes than lie there,
// and takes back the ids that the index has of them.
func (s *Snapshot) markRewritten(ctx context.Context) error {
	for repo := range s.repos {
		if !s.mayRewrite(ctx, repo) {
			continue
		}
		var list []int
		for i, f := range s.files {
			if f.repo == repo && f.Mode != Link && f.Mode != Submodule {
				list = append(list, i)
			}
		}
		rewritten, err := s.askRewritten(ctx, repo, list)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, exec.ErrNotFound) {
			return err
		}
		for n, i := range list {
			// Without git to ask, each file may be one.
			if err != nil || rewritten[n] {
				s.files[i].rewritten, s.files[i].ID = true, ""
			}
		}
	}
	return nil
}

// askRewritten lets git say which of these files have an attribute of those.
func (s *Snapshot) askRewritten(ctx context.Context, repo int, list []int) ([]bool, error) {
	top := s.repos[repo].top
	var in strings.Builder
	for _, i := range list {
		rel, err := filepath.Rel(top, s.abs(s.files[i].Path))
		if err != nil {
			return nil, err
		}
		in.WriteString(rel + "\x00")
	}
	out, err := git(ctx, top, []byte(in.String()), append([]string{"check-attr", "-z", "--stdin"}, rewriting...)...)
	if err != nil {
		return nil, err
	}
	answers := nulls(out) // path, attribute, value
	if len(answers) != 3*len(rewriting)*len(list) {
		return nil, errs.New(errs.DataLoss, "git check-attr answered something unknown")
	}
	rewritten := make([]bool, len(list))
	for n := range list {
		for k := range rewriting {
			switch v := answers[3*(n*len(rewriting)+k)+2]; v {
			case "unspecified", "unset":
			default:
				rewritten[n] = true
			}
		}
	}
	return rewritten, nil
}
