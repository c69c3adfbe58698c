package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/text"
	"nearmetal/internal/vhpc"
)

func newSpecImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import --vhpc FILE",
		Short: "Make a cluster file of another tool's",
		Long: `Reads a cluster file of VMware's vHPC toolkit (- is standard input) and writes
one for nearmetal plan --on vsphere to standard output. Standard error has a
line for each key that is not in it, those that the toolkit itself ignores among
them. No value of such a key is shown: it may be a password.`,
		Example: "  nearmetal spec import --vhpc cluster.conf >cluster.yaml\n  nearmetal plan -f cluster.yaml --from esx1.vsphere.tar.gz",
		Args:    noArgs,
	}
	file := cmd.Flags().String("vhpc", "", "the toolkit's `FILE`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *file == "" {
			return usagef("--vhpc FILE is missing")
		}
		r, name := cmd.InOrStdin(), "standard input"
		if *file != "-" {
			f, err := os.Open(*file)
			if err != nil {
				return err
			}
			defer f.Close()
			r, name = f, text.Clean(*file)
		}
		return importVHPC(cmd.OutOrStdout(), cmd.ErrOrStderr(), name, r)
	}
	return cmd
}

func importVHPC(out, errs io.Writer, name string, r io.Reader) error {
	f, err := vhpc.Read(name, r)
	if err != nil {
		return err
	}
	c, notes, err := f.Spec()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, n := range notes {
		fmt.Fprintf(errs, "%s: %s\n", name, text.Clean(n))
	}
	text, err := c.YAML()
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
