package main

import (
	"github.com/spf13/cobra"
)

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		GroupID: groupSelf,
		Short:   "Show how a command is used",
		Long:    "Shows how a command is used, as COMMAND --help does.",
		Example: "  nearmetal help spec show",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if parent, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range parent.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(about, append(rest, args...)[:1])
			}
			return about.Help()
		},
	}
}
