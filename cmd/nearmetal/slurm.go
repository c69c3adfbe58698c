package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/slurm"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
	"nearmetal/internal/wholefile"
)

func newSlurmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "slurm COMMAND",
		GroupID: groupSlurm,
		Short:   "Set up Slurm for srun --vm: GRES, an example, a doctor",
		Example: `  nearmetal slurm doctor
  nearmetal slurm gres >>/etc/slurm/gres.conf
  nearmetal slurm example --dir /etc/slurm`,
	}
	cmd.AddCommand(newSlurmDoctorCommand(), newSlurmGresCommand(), newSlurmExampleCommand())
	return cmd
}

// offerFlags are the flags of commands that read the resources of a host.
type offerFlags struct {
	root, node string
	region     spec.Size
}

func addOfferFlags(cmd *cobra.Command) *offerFlags {
	f := &offerFlags{}
	renamed(cmd, "root", "from")
	cmd.Flags().StringVar(&f.root, "from", "", "`HOST`: a captured tree, an archive or a description, instead of this host")
	cmd.Flags().StringVar(&f.node, "node", "", "Slurm's `NODENAME` of the host (default: its name)")
	cmd.Flags().Var(&f.region, "region", "memory for the regions of all jobs together, like 8GiB (default: a quarter)")
	return f
}

// offer reads the host and returns the resources that it offers.
func (f *offerFlags) offer() (*topology.Host, *slurm.Gres, error) {
	host, err := openHost(context.Background(), f.root, "", "")
	if err != nil {
		return nil, nil, err
	}
	node := f.node
	if node == "" {
		if node = host.Name; f.root == "" {
			if node, err = os.Hostname(); err != nil {
				return nil, nil, err
			}
		}
		node, _, _ = strings.Cut(node, ".")
	}
	if node == "" || strings.ContainsAny(node, " \t\n=#\"\\[],") {
		return nil, nil, usagef("--node %q is not the name of a node", node)
	}
	return host, slurm.NewGres(host, node, uint64(f.region)), nil
}

// gresOffer is the output of `nearmetal slurm gres --json`. The fields are in the order of their keys.
type gresOffer struct {
	Gres  string   `json:"gres"`      // for NodeName= in slurm.conf
	Types string   `json:"gresTypes"` // for GresTypes= in slurm.conf
	Lines []string `json:"lines"`     // for gres.conf
	Node  string   `json:"node"`
	Notes []string `json:"notes"` // reasons why VFs are not offered
}

func newSlurmGresCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gres [flags]",
		Short: "Print this host's lines of gres.conf: VFs and region",
		Long: `Prints what this host offers to jobs, as lines of gres.conf: each VF that is
bound to vfio-pci and alone in its IOMMU group, with the cores of its NUMA node,
and the memory for regions. What belongs in slurm.conf, and what keeps VFs from
being offered, is reported on standard error.`,
		Example: "  nearmetal slurm gres >>/etc/slurm/gres.conf\n  nearmetal slurm gres --region 32GiB --node n07",
		Args:    noArgs,
	}
	flags := addOfferFlags(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, gres, err := flags.offer()
		if err != nil {
			return err
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), gresOffer{gres.Value(), gres.Types(), gres.Lines(), gres.Node, gres.Notes})
		}
		p := progress(cmd)
		defer p.Close()
		p.Notef("slurm.conf: GresTypes=%s, NodeName=%s … Gres=%s", gres.Types(), gres.Node, gres.Value())
		for _, n := range gres.Notes {
			p.Printf("%s", n)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(gres.Lines(), "\n"))
		return err
	}
	return cmd
}

func newSlurmExampleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "example [flags]",
		Short: "Print a working Slurm configuration for this host",
		Long: `Prints slurm.conf, gres.conf, cgroup.conf, mpi.conf, plugstack.conf and
job_submit.lua that work together on this host as they are. --dir writes
them into a directory instead, where none of them may be yet.`,
		Example: "  nearmetal slurm example\n  nearmetal slurm example --file job_submit.lua\n  nearmetal slurm example --dir /etc/slurm",
		Args:    noArgs,
	}
	flags := addOfferFlags(cmd)
	dir := cmd.Flags().String("dir", "", "write the files into `DIR`")
	file := cmd.Flags().String("file", "", "only `FILE`, without a heading")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		host, gres, err := flags.offer()
		if err != nil {
			return err
		}
		hostname, err := os.Hostname()
		if err != nil {
			return err
		}
		if flags.root != "" {
			hostname = gres.Node
		}
		files := slurm.Example(host, gres, hostname)
		switch {
		case *file != "" && *dir != "":
			return usagef("--file and --dir are both given: one file is printed, or all are written")
		case *file != "":
			var names []string
			for _, f := range files {
				if f.Name == *file {
					_, err := io.WriteString(cmd.OutOrStdout(), f.Text)
					return err
				}
				names = append(names, f.Name)
			}
			return usagef("--file %q is none of %s", *file, strings.Join(names, ", "))
		case *dir != "":
			return writeExample(cmd, *dir, files)
		}
		for i, f := range files {
			if i > 0 {
				fmt.Fprintln(cmd.OutOrStdout())
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "==> %s <==\n%s", f.Name, f.Text); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// writeExample writes all files or, if one of them exists, none.
func writeExample(cmd *cobra.Command, dir string, files []slurm.File) error {
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil {
			return fmt.Errorf("%s is there already: nothing was written (nearmetal slurm example prints the files)", filepath.Join(dir, f.Name))
		}
	}
	p := progress(cmd)
	defer p.Close()
	var written []string
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if err := wholefile.Write(name, func(w io.Writer) error { _, err := io.WriteString(w, f.Text); return err }); err != nil {
			for _, w := range written {
				os.Remove(w)
			}
			return err
		}
		// slurmctld and every user's srun read them.
		if err := os.Chmod(name, 0o644); err != nil {
			return err
		}
		written = append(written, name)
	}
	p.Notef("wrote %s", strings.Join(written, ", "))
	return nil
}
