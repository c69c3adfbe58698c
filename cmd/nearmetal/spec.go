package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/site"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newSpecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "spec",
		GroupID: groupFile,
		Short:   "Check a cluster file, or show it with all defaults",
		Example: "  nearmetal spec validate cluster.yaml\n  nearmetal spec show --vms 4",
	}
	cmd.AddCommand(newSpecValidateCommand(), newSpecShowCommand(), newSpecTemplatesCommand(), newSpecImportCommand())
	return cmd
}

func newSpecValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check cluster files",
		Long: `Checks cluster files (- is standard input) and shows every mistake with its line
and column. The exit status is 3 if a file has a mistake.`,
		Example: "  nearmetal spec validate cluster.yaml\n  nearmetal spec validate clusters/*.yaml",
		Args:    atLeastOne("FILE"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var failed errorList
			unread := false
			for _, path := range args {
				c, _, err := loadCluster(cmd, path)
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", text.Clean(path))
					continue
				}
				failed = append(failed, err)
				// A cluster is returned together with an error only if its backend is unknown.
				unread = unread || c == nil && !errors.As(err, new(*spec.Problems))
			}
			switch {
			case failed == nil:
				return nil
			case unread:
				return failed
			}
			return findings(failed)
		},
	}
}

func newSpecShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [FILE] [flags]",
		Short: "Show a cluster file with all defaults filled in",
		Long: `Shows the cluster that nearmetal run or nearmetal up would start with the same
file and flags: a cluster file with every key that has a value.`,
		Example: "  nearmetal spec show\n  nearmetal spec show cluster.yaml --vms 4 >four.yaml\n  nearmetal spec show --json | jq .vms",
		Args:    rangeArgs(0, "FILE"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	cluster := addClusterFlags(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if cmd.Flags().Changed("file") {
				return usagef("a cluster file is given twice: %q and --file", args[0])
			}
			if err := cmd.Flags().Set("file", args[0]); err != nil {
				return err
			}
		}
		c, _, err := cluster()
		if err != nil {
			return err
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), c)
		}
		text, err := c.YAML()
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	return cmd
}

func newSpecTemplatesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "templates [--json]",
		Short: "List the cluster files that have names",
		Long: `Lists the cluster files of this site and of yours that -f takes by name: those
in /etc/nearmetal/templates and in ~/.config/nearmetal/templates.`,
		Example: "  nearmetal spec templates\n  nearmetal run -f small -- mpirun ./app",
		Args:    noArgs,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list := site.Templates()
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), list)
		}
		t := terminal.NewTable("name", "file")
		for _, n := range list {
			t.Row(n.Name, n.Path)
		}
		return t.Print(cmd.OutOrStdout())
	}
	return cmd
}

// errorList is a list of errors, each with its own lines.
type errorList []error

func (l errorList) Error() string { return errors.Join(l...).Error() }

// Lines returns the lines of all errors.
func (l errorList) Lines() []string {
	var lines []string
	for _, err := range l {
		lines = append(lines, terminal.ErrorLines(err)...)
	}
	return lines
}

var _ error = (*spec.Problems)(nil)
