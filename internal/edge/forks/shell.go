package forks

import (
	"github.com/spf13/cobra"

	"brood/internal/edge/cli"
)

// findShell starts the shell that the user has inside: $SHELL, else that of
// /etc/passwd, else sh. Accounts that are not for people have one that ends at
// once, which is not meant.
const findShell = `s=$SHELL
if [ -z "$s" ] && [ -r /etc/passwd ]; then
  u=$(id -u 2>/dev/null)
  while IFS=: read -r _ _ n _ _ _ p; do [ "$n" = "$u" ] && s=$p && break; done </etc/passwd
fi
case $s in */nologin|*/false) s= ;; esac
[ -n "$s" ] && [ -x "$s" ] || s=sh
exec "$s"`

func newShell(a *app) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "shell NAME",
		Short: "Open a shell in a sandbox",
		Long: `Open the user's shell in a sandbox, or sh. When standard input and output are a
terminal the shell has one too; else it reads commands from standard input. The
exit code is the shell's, 125 when brood failed.`,
		Example:           "  brood sb shell src\n  echo 'cat /etc/hostname' | brood sb shell src",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: a.complete(1, sandboxNames),
	}
	f.registerPlace(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, screen := a.Screen()
		f.stdin, f.tty = true, screen && cli.IsTerminal(a.In)
		o, err := f.options([]string{"sh", "-c", findShell})
		if err != nil {
			return err
		}
		return a.exec(cmd.Context(), args[0], o)
	}
	return cmd
}
