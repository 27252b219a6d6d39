package runs

import (
	"os"

	"brood/internal/edge/cli"
	"brood/internal/edge/view"
	"brood/internal/run/worker"
)

// viewOptions say how a run is shown here: on a terminal, in CI, or into a
// file.
func (a *app) viewOptions(f runFlags) (view.Options, error) {
	logs, err := view.ParseLogs(f.logs)
	if err != nil {
		return view.Options{}, err
	}
	ci := inCI()
	o := view.Options{
		Out: a.Out, Logs: logs, Bare: f.prefix == "none",
		Grouped: f.order == "grouped" || f.order == "auto" && ci,
		GitHub:  os.Getenv("GITHUB_ACTIONS") == "true",
		Colour:  !f.noColour && (f.colour || a.Palette().On || forcedColour()),
		Lend:    a.terminal() != nil,
	}
	if screen, ok := a.Screen(); ok && !f.plain && !ci {
		o.Size = func() (int, int) { return cli.Size(screen) }
	}
	return o, nil
}

func inCI() bool { return os.Getenv("CI") != "" && os.Getenv("CI") != "false" }

// terminal is what interactive tasks get: nil where nobody is there to answer.
func (a *app) terminal() *worker.Terminal {
	out, ok := a.Out.(*os.File)
	if !ok || a.JSON || inCI() || !cli.IsTerminal(a.In) || !cli.IsTerminal(out) {
		return nil
	}
	return &worker.Terminal{In: a.In, Out: out}
}

// forcedColour says that colours are wanted where there is no terminal.
func forcedColour() bool {
	force := os.Getenv("FORCE_COLOR")
	return force != "" && force != "0" && os.Getenv("NO_COLOR") == ""
}
