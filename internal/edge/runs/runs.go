package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/base/id"
	"brood/internal/edge/cli"
	"brood/internal/run"
	"brood/internal/run/history"
	"brood/internal/run/workspace"
)

func newRuns(a *app) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "runs",
		Short: "See past runs",
		Long: `See past runs of this machine: what ran, what came of it, and what it took. They
are in brood's home.`,
		Example: "  brood runs ls\n  brood runs show r-3f0c",
	}, newRunsLs(a), newRunsShow(a))
}

// pastRun is a run as --json says it.
type pastRun struct {
	Run       string             `json:"run"`
	Workspace string             `json:"workspace"`
	Platform  string             `json:"platform"`
	Command   []string           `json:"command"`
	Began     time.Time          `json:"began"`
	WallMS    int64              `json:"wallMs"`
	Status    run.Status         `json:"status"`
	Counts    map[run.Status]int `json:"counts"`
	Tasks     []pastTask         `json:"tasks,omitempty"`
}

type pastTask struct {
	Task       id.Task    `json:"task"`
	Status     run.Status `json:"status"`
	Key        run.Key    `json:"key,omitempty"`
	BeganMS    int64      `json:"beganMs"`
	SpentMS    int64      `json:"spentMs"`
	TookMS     int64      `json:"tookMs"` // of a hit: in the run that produced it
	CPUMS      int64      `json:"cpuMs"`
	PeakMemory int64      `json:"peakMemory"`
	Sampled    bool       `json:"sampled,omitempty"`
	Exit       int        `json:"exit"`
	Attempts   int        `json:"attempts"`
	Unsaved    string     `json:"unsaved,omitempty"`
}

func newPastRun(r history.Run) pastRun {
	p := pastRun{
		Run: r.ID, Workspace: r.Workspace, Platform: r.Platform, Command: orEmpty(r.Command),
		Began: r.Began, WallMS: r.Ended.Sub(r.Began).Milliseconds(), Status: r.Status, Counts: r.Counts,
	}
	for _, t := range r.Tasks {
		pt := pastTask{
			Task: t.ID, Status: t.Status, Key: t.Key, TookMS: t.Took.Milliseconds(), CPUMS: t.Usage.CPU.Milliseconds(),
			PeakMemory: t.Usage.PeakMemory, Sampled: t.Usage.Sampled, Exit: t.Exit, Attempts: t.Attempts, Unsaved: t.Unsaved,
		}
		if !t.Began.IsZero() {
			pt.BeganMS, pt.SpentMS = t.Began.Sub(r.Began).Milliseconds(), t.Ended.Sub(t.Began).Milliseconds()
		}
		p.Tasks = append(p.Tasks, pt)
	}
	return p
}

func newRunsLs(a *app) *cobra.Command {
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List past runs, the newest first",
		Long:    "List past runs of the workspace that this folder is in, the newest first.",
		Example: "  brood runs ls\n  brood runs ls --all --limit 100",
		Args:    cli.Takes(0, 0),
		RunE: cli.Interruptible(func(ctx context.Context, _ []string) error {
			return a.listRuns(ctx, all, limit)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "those of every workspace")
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	return cmd
}

func (a *app) listRuns(ctx context.Context, all bool, limit int) (err error) {
	if limit < 1 {
		return errs.New(errs.InvalidArgument, "--limit is at least 1, not %d", limit)
	}
	root := ""
	if !all {
		ws, err := workspace.Open(".")
		if err != nil {
			return err
		}
		root = ws.Root
	}
	h, err := a.history(a.warning)
	if err != nil {
		return err
	}
	h.Reading()
	defer func() { err = cli.Joined([]error{err, h.Close()}) }()
	runs, err := h.Runs(ctx, root, limit)
	if err != nil {
		return err
	}
	if a.JSON {
		list := make([]pastRun, len(runs))
		for i, r := range runs {
			list[i] = newPastRun(r)
		}
		return a.Value(map[string][]pastRun{"runs": list})
	}
	rows := make([][]string, len(runs))
	for i, r := range runs {
		rows[i] = []string{r.ID, cli.Brief(time.Since(r.Began)) + " ago", string(r.Status), cli.Took(uint64(r.Ended.Sub(r.Began).Milliseconds())), countsText(r.Counts), strings.Join(r.Command, " ")}
		if all {
			rows[i] = append(rows[i], r.Workspace)
		}
	}
	head := []string{"RUN", "BEGAN", "STATUS", "TOOK", "TASKS", "COMMAND"}
	if all {
		head = append(head, "WORKSPACE")
	}
	return cli.Table(a.Out, head, rows)
}

func countsText(counts map[run.Status]int) string {
	var parts []string
	for _, s := range []run.Status{run.Cached, run.Success, run.Failed, run.Skipped, run.Aborted} {
		if n := counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return cli.OrDash(strings.Join(parts, ", "))
}

func newRunsShow(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "show [RUN]",
		Short:   "Show a past run with its tasks",
		Long:    "Show a past run with its tasks. RUN may be the beginning of its name; without it the\nlast run of this workspace is shown.",
		Example: "  brood runs show\n  brood runs show r-3f0c --json",
		Args:    cli.Takes(0, 1),
		RunE: cli.Interruptible(func(ctx context.Context, args []string) error {
			return a.showRun(ctx, args)
		}),
	}
}

// namedRun is the run that was asked for, else the last one.
func namedRun(ctx context.Context, h *history.History, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return lastRun(ctx, h)
}

func (a *app) showRun(ctx context.Context, args []string) (err error) {
	h, err := a.history(a.warning)
	if err != nil {
		return err
	}
	h.Reading()
	defer func() { err = cli.Joined([]error{err, h.Close()}) }()
	name, err := namedRun(ctx, h, args)
	if err != nil {
		return err
	}
	r, err := h.Run(ctx, name)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Value(newPastRun(*r))
	}
	if err := cli.Facts(a.Out, [][2]string{
		{"run", r.ID}, {"workspace", r.Workspace}, {"command", strings.Join(r.Command, " ")}, {"began", r.Began.Local().Format(time.RFC3339)},
		{"took", cli.Took(uint64(r.Ended.Sub(r.Began).Milliseconds()))}, {"status", string(r.Status)}, {"tasks", countsText(r.Counts)},
	}); err != nil {
		return err
	}
	if len(r.Tasks) == 0 {
		return nil
	}
	rows := make([][]string, len(r.Tasks))
	for i, t := range r.Tasks {
		memory := "-"
		if t.Usage.PeakMemory > 0 {
			memory = fmt.Sprintf("%d MiB", t.Usage.PeakMemory>>20)
		}
		rows[i] = []string{string(t.ID), string(t.Status), cli.Took(uint64(t.Took.Milliseconds())), cli.Took(uint64(t.Usage.CPU.Milliseconds())), memory, t.Key.Short()}
	}
	return cli.Table(a.Out, []string{"TASK", "STATUS", "TOOK", "CPU", "MEMORY", "KEY"}, rows)
}

// lastRun is the newest run of the workspace that this folder is in.
func lastRun(ctx context.Context, h *history.History) (string, error) {
	ws, err := workspace.Open(".")
	if err != nil {
		return "", err
	}
	runs, err := h.Runs(ctx, ws.Root, 1)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", errs.New(errs.NotFound, "no run of %s is known here: `brood run` makes one", ws.Root)
	}
	return runs[0].ID, nil
}
