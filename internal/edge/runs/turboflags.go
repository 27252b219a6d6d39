package runs

import (
	"strings"

	"github.com/spf13/cobra"

	"brood/internal/base/errs"
)

// turboFlag is a flag of "turbo run" that "brood run" has not, and that scripts
// and workflows of repositories come with.
type turboFlag struct {
	name  string
	value value
	// instead is what does here what the flag does there; empty: it changes
	// nothing here, and is ignored.
	instead string
}

// value says whether a flag has one.
type value int

const (
	none value = iota
	optional
	needed
)

// turboFlags are those of turbo 2. What is about experiments of it is unknown
// here, as any flag is that nobody has.
var turboFlags = []turboFlag{
	{"cache-workers", needed, ""},
	{"daemon", none, ""},
	{"dangerously-disable-package-manager-check", none, ""},
	{"no-daemon", none, ""},
	{"no-update-notifier", none, ""},
	{"preflight", none, ""},
	{"remote-cache-timeout", needed, ""},
	{"skip-infer", none, ""},
	{"ui", needed, ""},
	{"verbosity", needed, ""},

	{"anon-profile", optional, "--trace FILE writes when what ran"},
	{"api", needed, "--remote-cache or the variable TURBO_API names the shared cache"},
	{"cache-dir", needed, "the variable BROOD_HOME names the folder of the local cache"},
	{"global-deps", needed, `name the files under "globalDependencies" in turbo.json`},
	{"heap", needed, "--report FILE has what each task used"},
	{"log-file", optional, "--json writes all events to standard output, --report FILE what came of them"},
	{"login", needed, "the variable TURBO_TOKEN has the token of the shared cache"},
	{"parallel", none, `mark tasks that never end "persistent", which take no place, say under "with" which run beside which, and how many run at once with --concurrency; --only runs tasks without those that they depend on`},
	{"profile", optional, "--trace FILE writes when what ran"},
	{"remote-cache-read-only", optional, "--cache=local:rw,remote:r"},
	{"remote-only", optional, "--cache=remote:rw"},
	{"root-turbo-json", needed, "turbo.json is read where it stands, at the root"},
	{"single-package", none, "a repository without workspaces is one package by itself; --filter=// chooses the root of another"},
	{"team", needed, "the variable TURBO_TEAM names the team"},
	{"token", needed, "the variable TURBO_TOKEN has the token, which others would see in a command line"},
}

// takeTurbos makes turbo's flags known: not in the help, but none is an unknown
// one. --dry-run is a name of --dry.
func (f *runFlags) takeTurbos(cmd *cobra.Command) {
	flags := cmd.Flags()
	for _, t := range turboFlags {
		usage := "a flag of turbo; ignored"
		if t.instead != "" {
			usage = "a flag of turbo; instead: " + t.instead
		}
		if t.value == none {
			flags.Bool(t.name, false, usage)
		} else {
			flags.String(t.name, "", usage)
		}
		if t.value == optional {
			flags.Lookup(t.name).NoOptDefVal = "true"
		}
		flags.Lookup(t.name).Hidden = true
	}
	flags.CountP(verbose, verbose, "a flag of turbo; ignored")
	flags.Lookup(verbose).Hidden = true
	flags.StringVar(&f.dry, "dry-run", "", "a flag of turbo; the same as --dry")
	flags.Lookup("dry-run").NoOptDefVal, flags.Lookup("dry-run").Hidden = "text", true
}

// verbose is turbo's -v and -vv, as --verbosity.
const verbose = "v"

// heedTurbos refuses the flags of turbo that would change a run, and notes those
// that change nothing.
func (f *runFlags) heedTurbos(cmd *cobra.Command) error {
	for _, t := range turboFlags {
		switch {
		case !cmd.Flags().Changed(t.name):
		case t.instead != "":
			return errs.New(errs.InvalidArgument, "--%s is a flag of turbo that brood has not; instead: %s", t.name, t.instead)
		default:
			f.ignored = append(f.ignored, "--"+t.name)
		}
	}
	if cmd.Flags().Changed(verbose) {
		f.ignored = append(f.ignored, "-"+verbose)
	}
	return nil
}

// tellIgnored says once which flags change nothing.
func (a *app) tellIgnored(f runFlags) {
	switch len(f.ignored) {
	case 0:
	case 1:
		a.Say("%s has no meaning here, ignored", f.ignored[0])
	default:
		a.Say("%s have no meaning here, ignored", strings.Join(f.ignored, ", "))
	}
}
