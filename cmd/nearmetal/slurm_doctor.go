package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newSlurmDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Say what Slurm lacks for srun --vm, with the lines to add",
		Long: `Reads slurm.conf, plugstack.conf, gres.conf, cgroup.conf and mpi.conf, looks at
this host, and says what keeps srun --vm from working or from being safe, with
the lines to add. It changes nothing. The exit status is 3 if something fails.

With --from it looks at that host, and at nothing of this one. A captured tree
without the host's configuration, an archive and a description need --conf: the
other files are beside that one. What they do not show of the host is unknown.`,
		Example: "  nearmetal slurm doctor\n  nearmetal slurm doctor --conf ./slurm.conf --json\n  nearmetal slurm doctor --from n07.tar.gz --conf ./slurm.conf --node n07",
		Args:    noArgs,
	}
	file := cmd.Flags().String("conf", "", "the slurm.conf `FILE` to read (default: $SLURM_CONF, else /etc/slurm/slurm.conf)")
	flags := addOfferFlags(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, gres, err := flags.offer()
		if err != nil {
			return err
		}
		o := slurm.Options{Conf: *file, Root: flags.root, Node: flags.node, Offer: gres, Ask: true}
		if flags.root != "" {
			o.Hostname = gres.Node
		}
		site, err := slurm.NewSite(cmd.Context(), o)
		if err != nil {
			return err
		}
		if site.Node != "" {
			gres.Node = site.Node
		}
		found := site.Doctor()
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), found)
		} else {
			err = printFindings(cmd.OutOrStdout(), found)
		}
		if err == nil && slurm.Count(found, slurm.StatusFail) > 0 {
			return findings(nil)
		}
		return err
	}
	return cmd
}

// statusColours are the colours of a row's outcome.
var statusColours = map[string]terminal.Colour{
	slurm.StatusOK: terminal.Green, slurm.StatusWarn: terminal.Yellow,
	slurm.StatusFail: terminal.Red, slurm.StatusUnknown: terminal.Plain,
}

// printFindings prints each finding on a line, and below it the reason and the lines to add.
func printFindings(w io.Writer, findings []slurm.Finding) error {
	colour := terminal.Coloured(w)
	var b strings.Builder
	for _, f := range findings {
		status := terminal.Paint(fmt.Sprintf("%-7s", f.Status), statusColours[f.Status], colour)
		where := ""
		if f.Where != "" {
			where = " (" + text.Clean(f.Where) + ")"
		}
		fmt.Fprintf(&b, "%s  %-12s  %s%s\n", status, f.ID, text.Clean(f.Found), where)
		if f.Why != "" {
			fmt.Fprintf(&b, "%-23s%s\n", "", f.Why)
		}
		file := ""
		for _, m := range f.Fix {
			switch {
			case m.File == "":
				fmt.Fprintf(&b, "%-23s$ %s\n", "", text.Clean(m.Line))
			case m.File != file:
				fmt.Fprintf(&b, "%-23sin %s:\n", "", text.Clean(m.File))
				fallthrough
			default:
				fmt.Fprintf(&b, "%-25s%s\n", "", text.Clean(m.Line))
			}
			file = m.File
		}
	}
	fmt.Fprintf(&b, "%d fail, %d warn, %d ok, %d unknown\n", slurm.Count(findings, slurm.StatusFail),
		slurm.Count(findings, slurm.StatusWarn), slurm.Count(findings, slurm.StatusOK), slurm.Count(findings, slurm.StatusUnknown))
	_, err := io.WriteString(w, b.String())
	return err
}
