package runs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"brood/internal/base/clean"
	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/edge/cli"
	"brood/internal/run"
	"brood/internal/run/cache/key"
	"brood/internal/run/graph"
	"brood/internal/run/history"
	"brood/internal/run/workspace"
)

func newWhy(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "why TASK [-- ARG...]",
		Short: "Say what makes a task run again",
		Long: `Say which input of a task changed since it last ran: a file, a variable, its
definition, the lockfile, or the same of a task that it depends on. When nothing
changed, say why it ran the last time. TASK is project#name, or a name that one
project has, or the project of this folder.`,
		Example: "  brood why web#build\n  brood why web#build --json",
		Args:    cobra.ArbitraryArgs,
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if at := c.ArgsLenAtDash(); at >= 0 {
			args, f.Args = args[:at], args[at:]
		}
		if len(args) != 1 {
			return cli.WrongUse(c, "one task is explained, not %d", len(args))
		}
		f.Tasks = args
		if err := f.heedVariables(c.Flags()); err != nil {
			return err
		}
		if err := f.checkEnvMode(); err != nil {
			return err
		}
		return cli.Interruptible(func(ctx context.Context, _ []string) error { return a.why(ctx, f) })(c, args)
	}
	cmd.Flags().StringVar(&f.cwd, "cwd", "", "be in this `folder` (default: the current one)")
	cmd.Flags().StringVar(&f.envMode, "env-mode", "", "the `mode` of the run: strict or loose (default: as the workspace says)")
	return cmd
}

// reason is why a task ran, or would run.
type reason struct {
	Task id.Task `json:"task"`
	// Key is what the key is now.
	Key run.Key `json:"key"`
	// Verdict is never (it never ran here), changed (it would run) or same (its
	// key is that of its last run; changes are those that made it run then).
	Verdict string     `json:"verdict"`
	Before  run.Key    `json:"before,omitempty"`
	Run     string     `json:"run,omitempty"` // the run to which it is compared
	When    time.Time  `json:"when,omitzero"`
	Status  run.Status `json:"status,omitempty"` // how it ended then
	// Ran is why the task ran in its last run, or will run, though its key is
	// the same; empty when its result is stored, or nothing is known.
	Ran     string      `json:"ran,omitempty"`
	Changes []whyChange `json:"changes"`
	Because []*reason   `json:"because,omitempty"` // of changed dependencies
}

type whyChange struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	How   string `json:"how"` // added, removed or changed
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

func (a *app) why(ctx context.Context, f runFlags) (err error) {
	p, err := a.begin(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = cli.Joined([]error{err, p.close(context.WithoutCancel(ctx))}) }()
	s, err := openRun(f)
	if err != nil {
		return err
	}
	f.Tasks[0] = unlabel(s.ws, f.Tasks[0])
	s.sel.Tasks = f.Tasks
	if err := s.build(ctx, f); err != nil {
		return err
	}
	if err := p.open(ctx, a, s, f); err != nil {
		return err
	}
	if p.history == nil {
		return errs.New(errs.FailedPrecondition, "%s", p.early[0])
	}
	p.history.Reading()
	defer func() { err = cli.Joined([]error{err, p.history.Close()}) }()
	for _, w := range p.early {
		a.warning(w)
	}
	p.showing = true
	target, err := whyTarget(s.graph, f.Tasks[0])
	if err != nil {
		return err
	}
	if err := p.keys.all(ctx, s.graph); err != nil {
		return err
	}
	e := &explainer{history: p.history, keys: p.keys, root: s.ws.Root, seen: map[id.Task]bool{}}
	r, err := e.explain(ctx, target)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Value(r)
	}
	a.tellWhy(r, "")
	return nil
}

// unlabel makes a task of the name that a run's output has in front of its
// lines, where the last colon stands for #.
func unlabel(ws *workspace.Workspace, said string) string {
	at := strings.LastIndexByte(said, ':')
	if at > 0 && !strings.Contains(said, "#") && ws.Project(id.Project(said[:at])) != nil {
		return said[:at] + "#" + said[at+1:]
	}
	return said
}

// whyTarget is the one task that is meant.
func whyTarget(g *graph.Graph, said string) (id.Task, error) {
	var found []string
	for _, t := range g.Tasks {
		if t.Requested && !t.Command.Empty() {
			found = append(found, string(t.ID))
		}
	}
	switch len(found) {
	case 1:
		return id.Task(found[0]), nil
	case 0:
		return "", errs.New(errs.NotFound, "no project here has a task %s that runs anything", said)
	}
	return "", errs.New(errs.InvalidArgument, "%d projects have a task %s: say which, such as %s", len(found), said, found[0])
}

// all derives the keys of a graph in its order.
func (k *keys) all(ctx context.Context, g *graph.Graph) error {
	known := make(map[id.Task]run.Key, len(g.Tasks))
	for _, t := range g.Tasks {
		if t.Persistent && !t.Excluded {
			continue
		}
		upstream := make(map[id.Task]run.Key, len(t.Deps))
		for _, d := range t.Deps {
			upstream[d] = known[d]
		}
		key, err := k.Key(ctx, t, upstream)
		if err != nil {
			return err
		}
		known[t.ID] = key
	}
	return nil
}

type explainer struct {
	history *history.History
	keys    *keys
	root    string
	seen    map[id.Task]bool
}

// explain compares a task's key with the last one, and those of the
// dependencies that made it change.
func (e *explainer) explain(ctx context.Context, t id.Task) (*reason, error) {
	e.seen[t] = true
	parts := e.keys.parts[t]
	if parts == nil {
		return nil, errs.New(errs.FailedPrecondition, "task %s has no key: it is persistent and runs every time", t)
	}
	known, err := e.history.Keys(ctx, e.root, t)
	if err != nil {
		return nil, err
	}
	r := &reason{Task: t, Key: parts.Key, Changes: []whyChange{}, Verdict: "never"}
	if len(known) == 0 {
		return r, nil
	}
	r.Verdict = "changed"
	before := known[0]
	if before.Parts.Key == parts.Key {
		r.Verdict = "same"
		if r.Ran, err = e.again(ctx, t); err != nil {
			return nil, err
		}
		if len(known) == 1 {
			r.at(before)
			return r, nil
		}
		before = known[1]
	}
	r.at(before)
	r.Before = before.Parts.Key
	return r, e.compare(ctx, r, before.Parts, parts)
}

// again says why a task runs whose key did not change.
func (e *explainer) again(ctx context.Context, t id.Task) (string, error) {
	last, task, err := e.history.Last(ctx, e.root, t)
	switch {
	case err != nil || task == nil:
		return "", err
	case task.Status == run.Failed:
		return "its last run failed, so nothing was stored", nil
	case task.Unsaved != "":
		return "its last run was not saved: " + task.Unsaved, nil
	case task.Status == run.Success && slices.Contains(last.Command, forced):
		return "its last run was with " + forced + ", which reads no cache", nil
	}
	return "", nil
}

func (r *reason) at(k history.Known) { r.Run, r.When, r.Status = k.Run, k.When, k.Status }

func (e *explainer) compare(ctx context.Context, r *reason, before, now *key.Parts) error {
	for _, c := range key.Diff(before, now) {
		r.Changes = append(r.Changes, newWhyChange(c))
		up := id.Task(c.Name)
		if c.Group != key.UpstreamGroup || c.Added || c.Removed || e.seen[up] || e.keys.parts[up] == nil {
			continue
		}
		below, err := e.explain(ctx, up)
		if err != nil {
			return err
		}
		r.Because = append(r.Because, below)
	}
	return nil
}

func newWhyChange(c key.Change) whyChange {
	w := whyChange{Group: c.Group, Name: c.Name, How: "changed", Old: c.Old, New: c.New}
	switch {
	case c.Added:
		w.How = "added"
	case c.Removed:
		w.How = "removed"
	}
	return w
}

func (a *app) tellWhy(r *reason, indent string) {
	p := a.Palette()
	name := p.Bold(clean.Text(string(r.Task)))
	since := fmt.Sprintf("run %s, %s ago", r.Run, cli.Brief(time.Since(r.When)))
	switch {
	case r.Verdict == "never":
		a.Tell("%s%s never ran here", indent, name)
	case r.Verdict == "changed":
		a.Tell("%s%s is not as it was in %s:", indent, name, since)
	case r.Before == "":
		a.Tell("%s%s is as it was in %s, where it ran for the first time here (%s)", indent, name, since, r.Status)
	default:
		a.Tell("%s%s is as it was in its last run", indent, name)
	}
	if r.Ran != "" {
		a.Tell("%s  %s", indent, p.Warn(clean.Message(r.Ran)))
	}
	if r.Verdict == "same" && r.Before != "" {
		a.Tell("%s  before that it was another, in %s:", indent, since)
	}
	because := slices.Clone(r.Because)
	for _, c := range r.Changes {
		a.Tell("%s  %s", indent, c.text(p))
		for _, b := range because {
			if c.Group == key.UpstreamGroup && id.Task(c.Name) == b.Task {
				a.tellWhy(b, indent+"    ")
			}
		}
	}
}

// shownValue is how much of a value is shown.
const shownValue = 60

func (c whyChange) text(p cli.Palette) string {
	kind := map[string]string{
		key.TaskGroup: "definition", key.EnvGroup: "variable", key.GlobalGroup: "workspace", key.LockGroup: "lockfile",
		key.UpstreamGroup: "dependency", key.FilesGroup: "file",
	}[c.Group]
	s := fmt.Sprintf("%-10s  %s %s", kind, clean.Text(c.Name), p.Warn(c.How))
	if c.Group == key.TaskGroup && c.How == "changed" && len(c.Old)+len(c.New) <= 2*shownValue {
		s += fmt.Sprintf(": %s, was %s", clean.Text(c.New), clean.Text(c.Old))
	}
	return s
}
