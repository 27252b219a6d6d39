package runs

import (
	"os"

	"github.com/spf13/pflag"

	"brood/internal/base/errs"
)

// turboVars are the variables of turbo that say what flags say, with the flag.
// A flag on the command line takes precedence.
var turboVars = []struct{ name, flag string }{
	{"TURBO_CACHE", "cache"},
	{"TURBO_CONCURRENCY", "concurrency"},
	{"TURBO_ENV_MODE", "env-mode"},
	{"TURBO_FORCE", "force"},
	{"TURBO_LOG_ORDER", "log-order"},
	{"TURBO_RUN_SUMMARY", "summarize"},
}

// heedVariables takes turbo's variables as those flags of a command that they
// stand for. One that is empty is as one that is not set.
func (f *runFlags) heedVariables(flags *pflag.FlagSet) error {
	f.from = map[string]string{}
	for _, v := range turboVars {
		value := os.Getenv(v.name)
		flag := flags.Lookup(v.flag)
		if value == "" || flag == nil || flag.Changed {
			continue
		}
		switch v.flag {
		case "force", "summarize":
			yes, err := turboBool(v.name)
			if err != nil {
				return err
			}
			if value = "false"; yes {
				value = "true"
			}
		}
		f.from["--"+v.flag] = v.name
		if err := flag.Value.Set(value); err != nil {
			return errs.New(errs.InvalidArgument, "%s: %w", v.name, err)
		}
	}
	if where := os.Getenv("TURBO_ROOT_TURBO_JSON"); where != "" {
		return errs.New(errs.InvalidArgument, "TURBO_ROOT_TURBO_JSON=%s is not understood: turbo.json is read where it stands, at the root", where)
	}
	if os.Getenv("TURBO_CACHE_DIR") != "" {
		f.ignored = append(f.ignored, "TURBO_CACHE_DIR")
	}
	return f.heedCaches(flags)
}

// heedCaches takes the variables that leave out some of the caches.
func (f *runFlags) heedCaches(flags *pflag.FlagSet) error {
	for _, v := range []struct {
		name string
		to   *bool
	}{{"TURBO_REMOTE_ONLY", &f.remoteOnly}, {"TURBO_REMOTE_CACHE_READ_ONLY", &f.remoteReadOnly}} {
		yes, err := turboBool(v.name)
		if err != nil {
			return err
		}
		if yes && f.from["--cache"] != "" {
			return errs.New(errs.InvalidArgument, "TURBO_CACHE and %s exclude each other: say it all with TURBO_CACHE, such as local:rw,remote:r", v.name)
		}
		*v.to = yes && !flags.Changed("cache")
	}
	return nil
}

// turboBool reads a variable that is yes or no.
func turboBool(name string) (bool, error) {
	switch value := os.Getenv(name); value {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	default:
		return false, errs.New(errs.InvalidArgument, "%s is true or false, not %q", name, value)
	}
}

// source is what a flag's value came from: the flag, or the variable that
// stands for it.
func (f *runFlags) source(flag string) string {
	if name := f.from[flag]; name != "" {
		return name
	}
	return flag
}
