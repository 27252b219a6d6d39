package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// expand turns "brood build" into "brood run build" where build is no command
// of ours. It returns the name that was taken for a task.
func expand(root *cobra.Command, args []string) (full []string, task string) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--home":
			i++ // its value
			continue
		case arg == "--json" || strings.HasPrefix(arg, "--json=") || strings.HasPrefix(arg, "--home="):
			continue
		case strings.HasPrefix(arg, "-"):
			if !runFlag(root, arg) {
				return args, ""
			}
			return slices.Insert(slices.Clone(args), i, "run"), ""
		case isCommand(root, arg):
			return args, ""
		}
		return slices.Insert(slices.Clone(args), i, "run"), arg
	}
	return args, ""
}

// runFlag says that an argument is a flag of run and of nothing above it, as in
// "brood --filter=web build".
func runFlag(root *cobra.Command, arg string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if name == "" || name == "help" || name == "h" {
		return false
	}
	for _, c := range root.Commands() {
		if c.Name() == "run" {
			flags := c.Flags()
			return flags.Lookup(name) != nil || len(arg) > 1 && arg[1] != '-' && flags.ShorthandLookup(arg[1:2]) != nil
		}
	}
	return false
}

func isCommand(root *cobra.Command, name string) bool {
	if strings.HasPrefix(name, "__") || name == "help" || name == "no-help" {
		return true // cobra's own
	}
	return slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool {
		return c.Name() == name || c.HasAlias(name)
	})
}

// Helped turns "brood help sb ls" into "brood sb ls --help".
func Helped(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}
