package graph

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"brood/internal/base/errs"
	"brood/internal/run/workspace"
)

func byName(a, b *workspace.Project) int { return strings.Compare(string(a.Name), string(b.Name)) }

// choose returns the projects that the selection means, sorted; all says that
// nothing narrowed it.
func (b *builder) choose(ctx context.Context) (projects []*workspace.Project, all bool, err error) {
	at, err := b.standing()
	if err != nil {
		return nil, false, err
	}
	var filters []filter
	for _, raw := range b.sel.Filters {
		f, err := parseFilter(raw)
		if err != nil {
			return nil, false, err
		}
		filters = append(filters, f)
	}
	if b.sel.Affected {
		base, err := b.base(ctx)
		if err != nil {
			return nil, false, err
		}
		filters = append(filters, filter{raw: "--affected", git: base, dependents: true})
	}
	if b.w.SinglePackage && len(filters) == 0 {
		return b.w.Projects, false, nil
	}
	if len(filters) == 0 && at.dir == "" {
		return b.packages(), true, nil
	}
	if len(filters) == 0 {
		filters = []filter{{}}
	}
	for i := range filters {
		f := &filters[i]
		at.narrow(f)
		if f.name == "" && f.dir == "" && f.git == nil {
			return nil, false, f.wrong("it names no project, folder or commit")
		}
	}
	projects, err = b.filterAll(ctx, filters)
	return projects, false, err
}

// packages are all projects but the root: that one is asked for by name.
func (b *builder) packages() []*workspace.Project {
	return slices.DeleteFunc(slices.Clone(b.w.Projects), (*workspace.Project).IsRoot)
}

// place is where the user stands, below the root; an empty dir is the root.
type place struct {
	dir     string
	project *workspace.Project
}

// standing finds the project that the user's folder belongs to.
func (b *builder) standing() (place, error) {
	if b.sel.Dir == "" {
		return place{}, nil
	}
	dir, err := filepath.EvalSymlinks(b.sel.Dir)
	if err != nil {
		return place{}, errs.New(errs.NotFound, "%s: %w", b.sel.Dir, err)
	}
	rel, err := filepath.Rel(b.w.Root, dir)
	if err != nil {
		return place{}, err
	}
	if rel = filepath.ToSlash(rel); rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return place{}, nil
	}
	at := place{dir: rel}
	for _, p := range b.packages() {
		if (rel == p.Dir || strings.HasPrefix(rel, p.Dir+"/")) && (at.project == nil || len(p.Dir) > len(at.project.Dir)) {
			at.project = p
		}
	}
	if at.project != nil {
		at.dir = at.project.Dir
	}
	return at, nil
}

// narrow makes a filter that names no project speak of where the user stands.
func (at place) narrow(f *filter) {
	if at.dir == "" || f.name != "" {
		return
	}
	if at.project != nil {
		f.name = string(at.project.Name)
	}
	switch {
	case f.dir != "":
		f.dir = filepath.ToSlash(filepath.Join(at.dir, f.dir))
	case at.project == nil:
		f.dir = at.dir + "/**"
	}
}

// filterAll applies all filters: what any includes, less what any excludes.
func (b *builder) filterAll(ctx context.Context, filters []filter) ([]*workspace.Project, error) {
	chosen := map[*workspace.Project]bool{}
	if !slices.ContainsFunc(filters, func(f filter) bool { return !f.exclude }) {
		merge(chosen, b.packages())
	}
	for _, exclude := range []bool{false, true} {
		for _, f := range filters {
			if f.exclude != exclude {
				continue
			}
			found, err := b.apply(ctx, f)
			if err != nil {
				return nil, err
			}
			for p := range found {
				if exclude {
					delete(chosen, p)
				} else {
					chosen[p] = true
				}
			}
		}
	}
	return sortedProjects(chosen), nil
}

// apply returns the projects of one filter.
func (b *builder) apply(ctx context.Context, f filter) (map[*workspace.Project]bool, error) {
	matched, err := b.match(ctx, f)
	if err != nil || !f.dependencies && !f.dependents {
		return matched, err
	}
	list := sortedProjects(matched)
	if !f.others {
		merge(matched, b.around(list, f))
		return matched, nil
	}
	// Each is left out of what it leads to, and stays where another leads to it.
	out := map[*workspace.Project]bool{}
	for _, p := range list {
		found := b.around([]*workspace.Project{p}, f)
		merge(out, slices.DeleteFunc(found, func(q *workspace.Project) bool { return q == p }))
	}
	return out, nil
}

// around are the dependencies and dependents that the filter asks for.
func (b *builder) around(list []*workspace.Project, f filter) []*workspace.Project {
	var all []*workspace.Project
	if f.dependents {
		all = slices.Clone(b.below(list))
		list = slices.Concat(list, all)
	}
	if f.dependencies {
		all = append(all, b.above(list)...)
	}
	return all
}

// above are all that the projects need, among them what all packages need.
func (b *builder) above(list []*workspace.Project) []*workspace.Project {
	if len(list) == 0 {
		return nil
	}
	found := b.closure(list, func(p *workspace.Project) []*workspace.Project { return p.Deps })
	return append(found, b.w.Shared...)
}

// below are all that need one of the projects.
func (b *builder) below(list []*workspace.Project) []*workspace.Project {
	if slices.ContainsFunc(list, func(p *workspace.Project) bool { return slices.Contains(b.w.Shared, p) }) {
		return b.w.Projects
	}
	users := map[*workspace.Project][]*workspace.Project{}
	for _, p := range b.w.Projects {
		for _, d := range p.Deps {
			users[d] = append(users[d], p)
		}
	}
	return b.closure(list, func(p *workspace.Project) []*workspace.Project { return users[p] })
}

// closure returns all that can be reached from the projects, which are in it
// only where a way leads back to them.
func (b *builder) closure(from []*workspace.Project, next func(*workspace.Project) []*workspace.Project) []*workspace.Project {
	seen := map[*workspace.Project]bool{}
	todo := slices.Clone(from)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range next(p) {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return sortedProjects(seen)
}

// match returns the projects that name, folder and commits of a filter mean.
func (b *builder) match(ctx context.Context, f filter) (map[*workspace.Project]bool, error) {
	if f.name != "" && !strings.Contains(f.name, "*") && !slices.ContainsFunc(b.w.Projects, func(p *workspace.Project) bool { return string(p.Name) == f.name }) {
		return nil, errs.New(errs.NotFound, "filter %q: there is no project %q%s", f.raw, f.name, b.didYouMean(f.name, b.projectNames()))
	}
	if f.dir != "" {
		if err := b.checkDir(f); err != nil {
			return nil, err
		}
	}
	var changed map[*workspace.Project]bool
	if f.git != nil {
		var err error
		if changed, err = b.changed(ctx, *f.git); err != nil {
			return nil, err
		}
	}
	out := map[*workspace.Project]bool{}
	for _, p := range b.w.Projects {
		in := (f.name == "" || matchName(f.name, string(p.Name))) && (f.dir == "" || matchDir(f.dir, p))
		if in && f.git != nil {
			in = changed[p] || f.through && slices.ContainsFunc(b.closure([]*workspace.Project{p}, func(p *workspace.Project) []*workspace.Project { return p.Deps }),
				func(d *workspace.Project) bool { return changed[d] })
		}
		if in {
			out[p] = true
		}
	}
	return out, nil
}

func matchDir(dir string, p *workspace.Project) bool {
	if p.IsRoot() {
		return dir == "." || dir == "**" || strings.HasPrefix(dir, "**/") && doublestar.MatchUnvalidated(dir, "")
	}
	return doublestar.MatchUnvalidated(dir, p.Dir)
}

// checkDir refuses a folder that is not there.
func (b *builder) checkDir(f filter) error {
	if !doublestar.ValidatePattern(f.dir) {
		return errs.New(errs.InvalidArgument, "filter %q: %q is no glob of folders", f.raw, f.dir)
	}
	base := f.dir
	if strings.ContainsAny(base, `*?[{\`) {
		base, _ = doublestar.SplitPattern(f.dir)
	}
	if !isDir(filepath.Join(b.w.Root, filepath.FromSlash(base))) {
		return errs.New(errs.NotFound, "filter %q: there is no folder %s in %s", f.raw, base, b.w.Root)
	}
	return nil
}
