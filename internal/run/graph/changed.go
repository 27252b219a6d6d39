package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// base is what --affected compares with.
func (b *builder) base(ctx context.Context) (*gitRange, error) {
	r := &gitRange{from: b.sel.Base, forked: true, lenient: true}
	if strings.HasPrefix(r.from, "-") {
		return nil, errs.New(errs.InvalidArgument, "--affected=%s: a commit does not begin with a dash", r.from)
	}
	if r.from != "" {
		return r, nil
	}
	r.from, r.to = b.variable("TURBO_SCM_BASE"), b.variable("TURBO_SCM_HEAD")
	r.dirty = r.to != ""
	for name, commit := range map[string]string{"TURBO_SCM_BASE": r.from, "TURBO_SCM_HEAD": r.to} {
		if strings.HasPrefix(commit, "-") {
			return nil, errs.New(errs.InvalidArgument, "%s=%s: a commit does not begin with a dash", name, commit)
		}
	}
	if r.from != "" {
		return r, nil
	}
	candidates := []string{"main", "master", "origin/HEAD"}
	if pull := b.variable("GITHUB_BASE_REF"); pull != "" {
		candidates = append([]string{pull, "origin/" + pull}, candidates...)
	}
	for _, c := range candidates {
		if _, err := b.git(ctx, "rev-parse", "--verify", "--quiet", c+"^{commit}"); err == nil {
			r.from = c
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return r, nil // nothing to compare with: all is taken as changed
}

func (b *builder) variable(name string) string {
	for _, v := range slices.Backward(b.sel.Environ) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// changed returns the projects with files that changed in a range.
func (b *builder) changed(ctx context.Context, r gitRange) (map[*workspace.Project]bool, error) {
	files, err := b.changedFiles(ctx, r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !r.lenient {
			return nil, err
		}
		b.graph.Warnings = append(b.graph.Warnings, fmt.Sprintf("every project counts as changed: %v", err))
		return b.everything(), nil
	}
	byDir := map[string]*workspace.Project{}
	for _, p := range b.w.Projects {
		byDir[p.Dir] = p
	}
	root := byDir["."]
	out := map[*workspace.Project]bool{}
	for _, file := range files {
		p := owner(byDir, file)
		if slices.Contains(b.w.Shared, p) || p == root && b.global(file) {
			return b.everything(), nil
		}
		out[p] = true
	}
	return out, nil
}

func (b *builder) everything() map[*workspace.Project]bool {
	all := map[*workspace.Project]bool{}
	merge(all, b.w.Projects)
	return all
}

// owner is the project of the deepest folder that holds the file.
func owner(byDir map[string]*workspace.Project, file string) *workspace.Project {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		if p := byDir[dir]; p != nil || dir == "." {
			return p
		}
	}
}

// global says whether a file of the root is about every project.
func (b *builder) global(file string) bool {
	if file == b.w.Lockfile || slices.Contains(workspace.GlobalFiles, file) {
		return true
	}
	in := false
	for _, g := range b.w.Globals.Dependencies {
		g, not := strings.CutPrefix(g, "!")
		if doublestar.MatchUnvalidated(path.Clean(g), file) {
			if not {
				return false
			}
			in = true
		}
	}
	return in
}

// changedFiles asks git which files differ, relative to the root.
func (b *builder) changedFiles(ctx context.Context, r gitRange) ([]string, error) {
	if r.from == "" {
		return nil, errs.New(errs.FailedPrecondition, "there is no main, master or origin/HEAD to compare with: name a base with --affected=COMMIT")
	}
	from, to := r.from, r.to
	if to == "" {
		to = "HEAD"
	}
	if r.forked {
		out, err := b.git(ctx, "merge-base", from, to)
		if err != nil {
			return nil, err
		}
		from = strings.TrimSpace(string(out))
	}
	args := []string{"diff", "--name-only", "--no-renames", "--relative", "-z", from}
	if r.to != "" {
		args = append(args, r.to)
	}
	out, err := b.git(ctx, append(args, "--")...)
	if err != nil || r.to != "" && !r.dirty {
		return split(out), err
	}
	if r.dirty {
		more, err := b.git(ctx, "diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD", "--")
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	untracked, err := b.git(ctx, "ls-files", "--others", "--exclude-standard", "-z")
	return append(split(out), split(untracked)...), err
}

func split(out []byte) []string {
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

// git runs git in the root and returns what it prints.
func (b *builder) git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = b.w.Root
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &exit):
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return nil, errs.New(errs.FailedPrecondition, "git %s: %s", strings.Join(args, " "), said)
	}
	return nil, errs.New(errs.FailedPrecondition, "git cannot be run: %w", err)
}
