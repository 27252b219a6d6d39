package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brood/internal/base/errs"
	"brood/internal/base/life"
	"brood/internal/edge/cli"
)

// benchWorld is where runs are measured.
type benchWorld struct {
	app    *app
	dir    string
	brood  string
	report *runReport
}

// benchShape is a workspace to generate: packages in layers, each with all of
// the tasks, each package needing two of the layer below.
type benchShape struct {
	name     string
	packages int
	layers   int
	tasks    []string
}

func (s benchShape) count() int { return s.packages * len(s.tasks) }

// benchCommand is the tiny task: a file, and a line of output.
const benchCommand = "mkdir -p dist && cat src/index.txt > dist/%[1]s.txt && echo %[1]s"

// make writes a workspace and commits it.
func (w *benchWorld) make(ctx context.Context, s benchShape) (string, error) {
	root := filepath.Join(w.dir, s.name)
	if exists(filepath.Join(root, "turbo.json")) {
		return root, nil // kept
	}
	tasks := make([]string, len(s.tasks))
	scripts := make([]string, len(s.tasks))
	for i, name := range s.tasks {
		deps := `"^` + name + `"`
		if i > 0 {
			deps += `,"` + s.tasks[i-1] + `"`
		}
		tasks[i] = fmt.Sprintf(`%q:{"dependsOn":[%s],"outputs":["dist/%s.txt"]}`, name, deps, name)
		scripts[i] = fmt.Sprintf("%q:%q", name, fmt.Sprintf(benchCommand, name))
	}
	files := map[string]string{
		"package.json": `{"name":"bench","private":true,"packageManager":"npm@10.9.0","workspaces":["packages/*"]}` + "\n",
		"turbo.json":   `{"tasks":{` + strings.Join(tasks, ",") + "}}\n",
		".gitignore":   "node_modules\ndist\n.turbo\n.brood\n",
	}
	perLayer := max(1, s.packages/s.layers)
	for i := range s.packages {
		var deps []string
		for k := range 2 {
			if i >= perLayer {
				deps = append(deps, fmt.Sprintf(`"p%d":"*"`, i-perLayer-(i%perLayer)+(i+k*7)%perLayer))
			}
		}
		slices.Sort(deps)
		at := fmt.Sprintf("packages/p%d/", i)
		files[at+"package.json"] = fmt.Sprintf(`{"name":"p%d","version":"1.0.0","dependencies":{%s},"scripts":{%s}}`+"\n", i, strings.Join(slices.Compact(deps), ","), strings.Join(scripts, ","))
		files[at+"src/index.txt"] = fmt.Sprintf("package %d\n", i)
	}
	files["package-lock.json"] = lockOf(files, s.packages)
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "bench"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", errs.New(errs.FailedPrecondition, "git %s: %w: %s", args[0], err, out)
		}
	}
	return root, nil
}

// lockOf is the lockfile that npm would write: links alone.
func lockOf(files map[string]string, packages int) string {
	var b strings.Builder
	b.WriteString(`{"name":"bench","lockfileVersion":3,"requires":true,"packages":{"":{"name":"bench","workspaces":["packages/*"]}`)
	for i := range packages {
		fmt.Fprintf(&b, `,"node_modules/p%d":{"resolved":"packages/p%[1]d","link":true},"packages/p%[1]d":%s`, i, strings.TrimSpace(files[fmt.Sprintf("packages/p%d/package.json", i)]))
	}
	b.WriteString("}}\n")
	return b.String()
}

// environ is that of both: nothing of CI, nothing of the user's own caches.
func (w *benchWorld) environ(extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "TURBO_") || strings.HasPrefix(name, "BROOD_") || strings.HasPrefix(name, "GITHUB_") || name == "CI" {
			continue
		}
		env = append(env, v)
	}
	return append(append(env, "BROOD_HOME="+filepath.Join(w.dir, "home"), "TURBO_TELEMETRY_DISABLED=1", "TURBO_NO_UPDATE_NOTIFIER=1", "DO_NOT_TRACK=1"), extra...)
}

// once runs a program in a workspace and adds what it took to an arm, when one
// is given.
func (w *benchWorld) once(ctx context.Context, root string, to *arm, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = root, env, &out, &out
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		text := out.Bytes()
		return errs.New(errs.FailedPrecondition, "%s: %w: %s", strings.Join(argv, " "), err, text[max(0, len(text)-2000):])
	}
	if to != nil {
		to.add(took, cmd.ProcessState)
	}
	return nil
}

func (a *arm) add(took time.Duration, state *os.ProcessState) {
	a.MS = append(a.MS, took.Milliseconds())
	if state == nil {
		a.Median = cli.Median(a.MS)
		return
	}
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		a.peaks = append(a.peaks, maxRSS(u)>>20)
	}
	a.cpus = append(a.cpus, (state.UserTime() + state.SystemTime()).Milliseconds())
	a.Median, a.PeakMiB, a.CPUMS = cli.Median(a.MS), cli.Median(a.peaks), cli.Median(a.cpus)
}

// maxRSS is in bytes; Linux counts in KiB.
func maxRSS(u *syscall.Rusage) int64 {
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss << 10
}

func (w *benchWorld) turboVersion(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, w.report.Turbo, "--version")
	cmd.Env, cmd.Dir = w.environ(), w.dir
	out, err := cmd.Output()
	if err != nil {
		return "", errs.New(errs.FailedPrecondition, "%s --version: %w", w.report.Turbo, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (w *benchWorld) broodArgs(tasks []string, flags ...string) []string {
	return append(append([]string{w.brood, "run"}, tasks...), flags...)
}

func (w *benchWorld) turboArgs(tasks []string, flags ...string) []string {
	argv := append(append([]string{w.report.Turbo, "run"}, tasks...), "--skip-infer", "--concurrency="+strconv.Itoa(w.report.CPUs), "--ui=stream")
	return append(argv, flags...)
}

// inTurns measures both, an arm first in every other round.
func (w *benchWorld) inTurns(p *pairing, brood, turbo func() error) error {
	for round := range w.report.Rounds {
		turns := []func() error{brood, turbo}
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
	}
	w.close(p)
	return nil
}

// close ends a measurement.
func (w *benchWorld) close(p *pairing) {
	p.Ratio = float64(p.Brood.Median) / float64(max(1, p.Turbo.Median))
	w.report.Runs = append(w.report.Runs, p)
	w.tell(p)
}

func (w *benchWorld) tell(p *pairing) {
	s := fmt.Sprintf("%-7s %6d tasks   brood %6d ms, %4d MiB   turbo %6d ms, %4d MiB   ratio %.2f", p.Name, p.Tasks, p.Brood.Median, p.Brood.PeakMiB, p.Turbo.Median, p.Turbo.PeakMiB, p.Ratio)
	if p.OverheadMS != nil {
		s += fmt.Sprintf("   a task over its bare command: brood %.1f ms, turbo %.1f ms", *p.OverheadMS, *p.TurboOverheadMS)
	}
	w.app.Tell("%s", s)
}

// standIn is an environment with an npm that only does what the tiny tasks do.
func (w *benchWorld) standIn() ([]string, error) {
	dir := filepath.Join(w.dir, "stand-in")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	env := w.environ("PATH=" + dir + string(filepath.ListSeparator) + os.Getenv("PATH"))
	script := "#!/bin/sh\nfor last; do :; done\n" + strings.ReplaceAll(benchCommand, "%[1]s", "$last") + "\n"
	return env, os.WriteFile(filepath.Join(dir, "npm"), []byte(script), 0o755)
}

// bare runs the commands of a workspace and nothing else, as many at once as
// there are cores.
func (w *benchWorld) bare(ctx context.Context, root string, s benchShape, to *arm) error {
	began := time.Now()
	failures := life.Each(ctx, s.packages, w.report.CPUs, func(ctx context.Context, i int) error {
		for _, name := range s.tasks {
			cmd := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(benchCommand, name))
			cmd.Dir = filepath.Join(root, "packages", fmt.Sprintf("p%d", i))
			if err := cmd.Run(); err != nil {
				return err
			}
		}
		return nil
	})
	to.add(time.Since(began), nil)
	return errors.Join(failures...)
}
