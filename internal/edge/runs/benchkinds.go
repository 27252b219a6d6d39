package runs

import (
	"context"
	"path/filepath"
)

// warm is tiny tasks that are all cached, outputs in place.
func (w *benchWorld) warm(ctx context.Context) error {
	return w.allCached(ctx, benchWarm, benchShape{name: "tiny", packages: w.report.Tasks, layers: 10, tasks: []string{"build"}})
}

// many is the same with ten tasks a package.
func (w *benchWorld) many(ctx context.Context) error {
	names := []string{"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"}
	return w.allCached(ctx, benchMany, benchShape{name: "many", packages: max(1, w.report.Many/len(names)), layers: 20, tasks: names})
}

// layers is a deep workspace: what a run of it takes, and what of that is known
// before anything is looked up.
func (w *benchWorld) layers(ctx context.Context) error {
	s := benchShape{name: "layers", packages: 1000, layers: 100, tasks: []string{"gen", "build", "test"}}
	first := &pairing{Name: "first", Tasks: s.count()}
	root, err := w.fill(ctx, benchLayers, s, first)
	if err != nil {
		return err
	}
	file := func(name string) string { return filepath.Join(w.dir, name+".dot") }
	for _, m := range []struct{ name, brood, turbo string }{
		{benchLayers, "", ""},
		{"graph", "--graph=" + file("brood"), "--graph=" + file("turbo")},
		{"keys", "--dry=json", "--dry=json"},
	} {
		if err := w.both(ctx, m.name, root, s, m.brood, m.turbo); err != nil {
			return err
		}
	}
	w.close(first)
	return nil
}

// allCached fills both caches and measures runs that find everything.
func (w *benchWorld) allCached(ctx context.Context, name string, s benchShape) error {
	root, err := w.fill(ctx, name, s, &pairing{})
	if err != nil {
		return err
	}
	return w.both(ctx, name, root, s, "", "")
}

// fill makes a workspace and runs all of it once, which p is told.
func (w *benchWorld) fill(ctx context.Context, name string, s benchShape, p *pairing) (root string, err error) {
	if root, err = w.make(ctx, s); err != nil {
		return "", err
	}
	standIn, err := w.standIn()
	if err != nil {
		return "", err
	}
	w.app.Tell("%s: filling the caches of %d tasks", name, s.count())
	if err := w.once(ctx, root, &p.Turbo, standIn, w.turboArgs(s.tasks)...); err != nil {
		return "", err
	}
	return root, w.once(ctx, root, &p.Brood, w.environ(), w.broodArgs(s.tasks)...)
}

// both measures the same run of both, with one more flag where it is not empty.
func (w *benchWorld) both(ctx context.Context, name, root string, s benchShape, broodFlag, turboFlag string) error {
	flags := func(flag string) []string {
		if flag == "" {
			return nil
		}
		return []string{flag}
	}
	env := w.environ()
	p := &pairing{Name: name, Tasks: s.count()}
	return w.inTurns(p,
		func() error { return w.once(ctx, root, &p.Brood, env, w.broodArgs(s.tasks, flags(broodFlag)...)...) },
		func() error { return w.once(ctx, root, &p.Turbo, env, w.turboArgs(s.tasks, flags(turboFlag)...)...) })
}

// cold is tiny tasks of which none is cached, beside the bare commands.
func (w *benchWorld) cold(ctx context.Context) error {
	s := benchShape{name: "tiny", packages: w.report.Tasks, layers: 10, tasks: []string{"build"}}
	root, err := w.make(ctx, s)
	if err != nil {
		return err
	}
	env := w.environ()
	standIn, err := w.standIn()
	if err != nil {
		return err
	}
	p := &pairing{Name: benchCold, Tasks: s.count(), Bare: &arm{}}
	over := func(a arm) *float64 {
		ms := float64(a.Median-p.Bare.Median) / float64(s.count())
		return &ms
	}
	return w.inTurns(p,
		func() error {
			if err := w.bare(ctx, root, s, p.Bare); err != nil {
				return err
			}
			err := w.once(ctx, root, &p.Brood, env, w.broodArgs(s.tasks, "--force")...)
			p.OverheadMS = over(p.Brood)
			return err
		},
		func() error {
			err := w.once(ctx, root, &p.Turbo, standIn, w.turboArgs(s.tasks, "--force")...)
			p.TurboOverheadMS = over(p.Turbo)
			return err
		})
}
