package runs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
	"brood/internal/edge/cli"
	"brood/internal/edge/view"
	"brood/internal/run/dispatch"
	"brood/internal/run/graph"
	"brood/internal/run/workspace"
)

// runFlags are what the command line says of a run.
type runFlags struct {
	graph.Selection
	cwd         string
	affected    string
	noInference string
	ignored     []string          // flags of turbo that change nothing
	from        map[string]string // flags that a variable said, and which

	dry   string
	graph string

	mode        string
	concurrency string
	force       bool
	noCache     bool
	cache       string
	cacheSize   string
	remote      string
	timeout     time.Duration
	retry       int
	envMode     string
	// What turbo's variables leave out of the caches.
	remoteOnly, remoteReadOnly bool

	logs      string
	order     string
	prefix    string
	plain     bool
	colour    bool
	noColour  bool
	summarize string
	trace     string
	junit     string
	report    string
}

func newRun(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] TASK... [-- ARG...]",
		Short: "Run a workspace's tasks, from the cache where nothing changed",
		Long: `Run tasks of the workspace that this folder is in, and all that they depend on.
A workspace is described by brood.yaml, by turbo.json, or by package.json alone.
A TASK is a name (of every project that has it) or project#name. What is after --
goes to the tasks that are named.

A task whose inputs did not change is not run: its outputs are restored, and its
output is shown, as they were. "brood why TASK" says why one was not found.

Without a TASK the tasks there are listed. "brood TASK" is short for it where brood
has no command of that name. The exit code is 1 when a task failed.`,
		Example: `  brood run build test
  brood run build --filter=web...
  brood run test --affected
  brood run test --filter=api -- --watch=false
  brood build`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return taskNames(f, given), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.RunE = func(c *cobra.Command, args []string) error {
		f.Tasks = args
		if at := c.ArgsLenAtDash(); at >= 0 {
			f.Tasks, f.Args = args[:at], args[at:]
		}
		f.Affected = c.Flags().Changed("affected")
		if err := f.heedTurbos(c); err != nil {
			return err
		}
		if err := f.heedVariables(c.Flags()); err != nil {
			return err
		}
		return cli.Interruptible(func(ctx context.Context, _ []string) error { return a.runTasks(ctx, f) })(c, args)
	}
	f.selecting(cmd)
	f.going(cmd)
	f.showing(cmd)
	f.takeTurbos(cmd)
	return cmd
}

// selecting are the flags that say which tasks run.
func (f *runFlags) selecting(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.Filters, "filter", "F", nil, "only `projects`: name, glob, ./folder, [since], with ... for what they need or what needs them, ! to leave out; repeatable (default: all)")
	flags.StringVar(&f.affected, "affected", "", "only projects changed since `base`, and those that need them (default base: that of the pull request, else main)")
	flags.Lookup("affected").NoOptDefVal = autoBase
	flags.BoolVar(&f.Only, "only", false, "only the tasks that are named, not what they depend on")
	flags.BoolVar(&f.ExcludeDependencies, "exclude-dependencies", false, "do not run what the named tasks depend on; keys stay the same, and results are not saved")
	flags.StringVar(&f.cwd, "cwd", "", "be in this `folder` (default: the current one)")
	flags.StringVar(&f.noInference, "framework-inference", "true", "whether variables that known frameworks read are declared by themselves: `yes or no` as true or false")
	flags.StringVar(&f.dry, "dry", "", "say what would run and run nothing, in a `form`: text or json (default text)")
	flags.Lookup("dry").NoOptDefVal = "text"
	flags.StringVar(&f.graph, "graph", "", "write the tasks' graph to a `file`, as .svg or .dot, and run nothing (default: dot to standard output)")
	flags.Lookup("graph").NoOptDefVal = "-"
}

// going are the flags that say how they run.
func (f *runFlags) going(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.mode, "continue", "", "after a failure go on: `mode` never, dependencies-successful or always (default never under turbo.json, else dependencies-successful; always for the flag alone)")
	flags.Lookup("continue").NoOptDefVal = string(dispatch.Always)
	flags.StringVar(&f.concurrency, "concurrency", "", "tasks at once: a `number`, or a percentage of the cores (default: as many as there are cores)")
	flags.BoolVar(&f.force, "force", false, "run all tasks, whatever the cache has, and save their results")
	flags.BoolVar(&f.noCache, "no-cache", false, "do not save results")
	flags.StringVar(&f.cache, "cache", "", "which `caches` are read and written, such as local:rw,remote:r (default: all)")
	flags.StringVar(&f.cacheSize, "cache-size", "", "the `size` that the local cache may have, such as 20G (default: what the workspace says, else 10 GB)")
	flags.StringVar(&f.remote, "remote-cache", "", "the shared cache's `address`, such as grpc://host:port (default $BROOD_CACHE, else what the workspace says)")
	flags.DurationVar(&f.timeout, "timeout", 0, "stop a task after this long, when it says nothing itself (default: never)")
	flags.IntVar(&f.retry, "retry", 0, "try a failed task again this often, when it says nothing itself (default 0)")
	flags.StringVar(&f.envMode, "env-mode", "", "which variables tasks see, by `mode`: strict (those declared) or loose (all) (default: as the workspace says, else strict)")
}

// showing are the flags that say what is seen of it.
func (f *runFlags) showing(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.logs, "output-logs", "", "which output of tasks is shown, by `mode`: full, hash-only, new-only, errors-only or none (default: as the workspace says, else full)")
	flags.StringVar(&f.order, "log-order", "auto", "the `order` of output: as it comes (stream), or of each task at its end (grouped); auto is grouped in CI")
	flags.StringVar(&f.prefix, "log-prefix", "auto", "`what` is in front of a task's lines: its name (task) or none; auto is its name")
	flags.BoolVar(&f.colour, "color", false, "use colours, also where standard output is no terminal")
	flags.BoolVar(&f.noColour, "no-color", false, "use no colours")
	flags.BoolVar(&f.plain, "plain", false, "do not paint on the terminal")
	flags.StringVar(&f.summarize, "summarize", "", "write all about the run as JSON to a `file` (default: in brood's home)")
	flags.Lookup("summarize").NoOptDefVal = inHome
	flags.StringVar(&f.trace, "trace", "", "write when what ran to a `file` for chrome://tracing or Perfetto (default: nowhere)")
	flags.StringVar(&f.junit, "junit", "", "write a JUnit report to a `file` (default: nowhere)")
	flags.StringVar(&f.report, "report", "", "write outcomes and summary as JSON to a `file` (default: nowhere)")
}

// autoBase stands for the base of --affected that is found out.
const autoBase = "auto"

// check reads what the flags say beyond their types.
func (f *runFlags) check() error {
	if f.Base = f.affected; f.Base == autoBase {
		f.Base = ""
	}
	switch f.noInference {
	case "true", "":
	case "false":
		f.NoInference = true
	default:
		return errs.New(errs.InvalidArgument, "--framework-inference is true or false, not %q", f.noInference)
	}
	if f.dry != "" && f.dry != "text" && f.dry != "json" {
		return errs.New(errs.InvalidArgument, "--dry is text or json, not %q", f.dry)
	}
	if f.order != "auto" && f.order != "stream" && f.order != "grouped" {
		return errs.New(errs.InvalidArgument, "%s is auto, stream or grouped, not %q", f.source("--log-order"), f.order)
	}
	if f.prefix != "auto" && f.prefix != "task" && f.prefix != "none" {
		return errs.New(errs.InvalidArgument, "--log-prefix is auto, task or none, not %q", f.prefix)
	}
	if err := f.checkEnvMode(); err != nil {
		return err
	}
	if f.Only && f.ExcludeDependencies {
		return errs.New(errs.InvalidArgument, "--only and --exclude-dependencies exclude each other: both leave out what the named tasks depend on, and the second keeps their keys")
	}
	if f.colour && f.noColour {
		return errs.New(errs.InvalidArgument, "--color and --no-color exclude each other")
	}
	if f.retry < 0 || f.timeout < 0 {
		return errs.New(errs.InvalidArgument, "--retry and --timeout are not negative")
	}
	if f.summarize == "false" {
		f.summarize = ""
	}
	if err := pictured(f.graph); err != nil {
		return err
	}
	_, err := view.ParseLogs(f.logs)
	return err
}

func (f *runFlags) checkEnvMode() error {
	if f.envMode != "" && f.envMode != "strict" && f.envMode != "loose" {
		return errs.New(errs.InvalidArgument, "%s is strict or loose, not %q", f.source("--env-mode"), f.envMode)
	}
	return nil
}

// forced is the flag that history keeps, for it makes tasks run.
const forced = "--force"

// remembered is the command as history knows it.
func (f *runFlags) remembered() []string {
	if f.force {
		return append(slices.Clone(f.Tasks), forced)
	}
	return f.Tasks
}

// continues is the way to go on after a failure: the flag's, else what suits
// the workspace.
func (f *runFlags) continues(w *workspace.Workspace) (dispatch.Continue, error) {
	switch {
	case f.mode != "":
		return dispatch.ParseContinue(f.mode)
	case w.Kind == workspace.Turbo:
		return dispatch.Never, nil
	}
	return dispatch.Dependents, nil
}

// places is how many tasks run at once.
func (f *runFlags) places(w *workspace.Workspace) (int, error) {
	said, where := f.concurrency, f.source("--concurrency")
	if said == "" {
		said, where = w.Settings.Concurrency, string(w.Kind)
	}
	cores := runtime.GOMAXPROCS(0) // it knows the quota of a cgroup
	if said == "" {
		return cores, nil
	}
	if share, ok := strings.CutSuffix(said, "%"); ok {
		if n, err := strconv.ParseFloat(share, 64); err == nil && n > 0 {
			return max(1, int(n*float64(cores)/100)), nil
		}
	} else if n, err := strconv.Atoi(said); err == nil && n > 0 {
		return n, nil
	}
	return 0, errs.New(errs.InvalidArgument, "%s: concurrency %q is neither a number above 0 nor a percentage", where, said)
}

// A run of a few hundred tasks is over before its garbage is worth collecting,
// one of many thousands is not: so the collector starts late, and the sooner
// the more tasks there are.
const (
	shortLived = 800 // percent
	usualTasks = 500
)

// runTasks is brood run.
func (a *app) runTasks(ctx context.Context, f runFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	if err := a.destinations(f); err != nil {
		return err
	}
	if len(f.Tasks) == 0 {
		s, err := openRun(f)
		if err != nil {
			return err
		}
		return a.listTasks(s.ws)
	}
	if a.connect == nil && (f.said() != "" || turbos() != "") {
		a.alone = a.HandOver()
	}
	err = a.runHere(ctx, f)
	if errors.Is(err, errElsewhere) {
		a.alone = a.HandOver()
		err = a.runHere(ctx, f)
	}
	return err
}

// errElsewhere says that the workspace has a shared cache and that nothing was
// begun: the whole program is to run.
var errElsewhere = errors.New("the shared cache is for the whole program")

// runHere is runTasks in this program.
func (a *app) runHere(ctx context.Context, f runFlags) (err error) {
	debug.SetGCPercent(shortLived)
	p, err := a.begin(ctx, f)
	if err != nil {
		return a.noTask(f, err)
	}
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx))) }()
	s, err := openRun(f)
	if err == nil {
		p.read(s)
		s.cached, err = s.shared(f)
	}
	if err == nil && s.cached.Address != "" && a.connect == nil && a.alone == nil {
		return errElsewhere
	}
	if err == nil {
		err = s.build(ctx, f)
	}
	if err != nil {
		return a.noTask(f, err)
	}
	a.tellIgnored(f)
	a.tellUnwritten(f)
	debug.SetGCPercent(min(shortLived, max(100, shortLived*usualTasks/max(1, len(s.graph.Tasks)))))
	switch {
	case f.graph != "":
		return a.writeGraph(ctx, s, f.graph)
	case f.dry != "":
		return a.dryRun(ctx, s, p, f)
	}
	return a.carryOut(ctx, s, p, f)
}

// noTask makes an error fit for "brood NAME", where it is not known that a task
// was meant.
func (a *app) noTask(f runFlags, err error) error {
	if a.Shorthand == "" || !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.InvalidArgument) && !errs.Is(err, errs.FailedPrecondition) {
		return err
	}
	hint := fmt.Sprintf("brood has no command %q", a.Shorthand)
	a.Root.SuggestionsMinimumDistance = 2
	if near := a.Root.SuggestionsFor(a.Shorthand); len(near) > 0 {
		hint += ", did you mean " + strings.Join(near, " or ")
	}
	return errs.New(errs.InvalidArgument, "%s; as a task: %w", hint, err)
}
