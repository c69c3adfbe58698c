package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/explain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain [flags] FILE.xml",
		GroupID: groupHost,
		Short:   "Report what keeps a libvirt domain from native speed, and fix its XML",
		Long: `Reads a domain's XML, as virsh dumpxml prints it, lays it on the topology of
this host, and reports row by row what was found, what is wanted, what it costs
with the document that says so, and the lines that fix it. What is wanted is
what nearmetal plan would choose for such a VM on this host with nothing else
on it.

FILE may be -, standard input. --host names another host: a captured tree, an
archive of nearmetal topology gather, hwloc's XML or a description.

--fix writes the XML with all of these lines to a new file; the domain itself is
left alone until you give that file to virsh define. See docs/libvirt.md.

The exit status is 1 if a row fails; a warning costs something, or may.`,
		Example: `  virsh dumpxml vm0 | nearmetal explain -
  nearmetal explain --problems vm0.xml
  nearmetal explain --host node17.tar.gz vm0.xml
  nearmetal explain --fix vm0-fixed.xml vm0.xml && virsh define vm0-fixed.xml
  nearmetal explain --json vm0.xml`,
		Args: exactArgs("the domain's XML, FILE or -"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"xml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	on := cmd.Flags().String("host", "", "lay it on `HOST` instead of this one: folder, archive, hwloc's XML or description")
	fix := cmd.Flags().String("fix", "", "write the XML with everything fixed to `FILE`, which must be new; - for standard output")
	all := cmd.Flags().Bool("all", false, "show what does not apply, too")
	problems := cmd.Flags().Bool("problems", false, "show only what fails or warns")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *fix != "" && *asJSON {
			return usagef("--fix and --json cannot be given together")
		}
		d, err := readDomain(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		h, err := explainHost(*on)
		if err != nil {
			return err
		}
		if *fix != "" {
			return fixDomain(cmd, d, h, *fix)
		}
		r, err := explain.Explain(d, h)
		if err != nil {
			return fmt.Errorf("%s: %w", terminal.Clean(args[0]), err)
		}
		if *asJSON {
			err = terminal.PrintJSON(cmd.OutOrStdout(), r)
		} else {
			f := checkFlags{all: *all, problems: *problems}
			_, err = io.WriteString(cmd.OutOrStdout(), r.Text(f.text(cmd)))
			if err == nil && r.Fixable() {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "\n--fix FILE writes the XML with these lines")
			}
		}
		if err == nil && r.Failed() {
			err = exitStatus(exitFailure)
		}
		return err
	}
	return cmd
}

// readDomain reads the XML of a file, or of standard input for "-".
func readDomain(stdin io.Reader, name string) (*explain.Domain, error) {
	r := stdin
	if name != "-" {
		// Anything but a file could wait for ever.
		st, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !st.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no file: virsh dumpxml prints a domain's XML", terminal.Clean(name))
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	d, err := explain.Read(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", terminal.Clean(name), err)
	}
	return d, nil
}

// explainHost is the host that a domain is laid on.
func explainHost(name string) (*topology.Host, error) {
	if name == "" {
		return topology.Read("/")
	}
	return topology.Open(name)
}

// fixDomain writes the fixed XML, and says which rows it is for.
func fixDomain(cmd *cobra.Command, d *explain.Domain, h *topology.Host, path string) error {
	text, did, err := explain.Fixed(d, h)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err = io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
	if err := writeNew(path, text); err != nil {
		return err
	}
	if len(did) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing was to be changed\n", terminal.Clean(path))
		return err
	}
	for _, id := range did {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "fixed "+id); err != nil {
			return err
		}
	}
	again, err := explain.Read(strings.NewReader(text))
	if err != nil {
		return err
	}
	left, err := explain.Explain(again, h)
	if err != nil {
		return err
	}
	for _, row := range left.Rows {
		if row.Status == check.Fail || row.Status == check.Warn {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "left  %s: %s\n", row.ID, row.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}
