package main

import (
	"github.com/spf13/cobra"
)

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "completion bash|zsh|fish",
		GroupID: groupSelf,
		Short:   "Print the script that completes commands in a shell",
		Long: `Prints a script that lets a shell complete nearmetal's commands, flags and
values. make install puts the scripts where the shells look for them; that for
bash needs the package bash-completion.`,
		Example: `  source <(nearmetal completion bash)
  nearmetal completion zsh >"${fpath[1]}/_nearmetal"
  nearmetal completion fish >~/.config/fish/completions/nearmetal.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      oneOf("shell", "bash", "zsh", "fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			}
			return root.GenFishCompletion(out, true)
		},
	}
}
