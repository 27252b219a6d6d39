package cli

import "github.com/spf13/cobra"

func newCompletion(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write a completion script for a shell",
		Long: `Write a completion script for a shell: commands, flags, and the names of
sandboxes, checkpoints and batches. Names are asked of the daemon when there is
one; none is started.`,
		Example: `  source <(brood completion bash)
  brood completion zsh > "${fpath[1]}/_brood"
  brood completion fish > ~/.config/fish/completions/brood.fish`,
		Args:      Takes(1, 1),
		ValidArgs: []string{"bash", "zsh", "fish"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch args[0] {
		case "bash":
			return cmd.Root().GenBashCompletionV2(a.Out, true)
		case "zsh":
			return cmd.Root().GenZshCompletion(a.Out)
		case "fish":
			return cmd.Root().GenFishCompletion(a.Out, true)
		}
		return WrongUse(cmd, "there is none for %q", args[0])
	}
	return cmd
}
