package main

import (
	"io"
	"path/filepath"

	"github.com/klauspost/compress/gzip"
	"github.com/spf13/cobra"

	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
	"nearmetal/internal/wholefile"
)

func newTopologyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topology [flags]",
		GroupID: groupFile,
		Short:   "Show what a host has: NUMA nodes, caches, cores, memory, devices",
		Long: `Shows NUMA nodes and their distances, packages, last-level caches, cores and
CPUs, memory and huge pages, and PCI devices with their nodes; and what of it
this job may use. Without flags it reads this host. Other hosts are read from a
captured tree, from an archive of nearmetal topology gather, from hwloc's XML,
or from a description (.machine).`,
		Example: `  nearmetal topology
  nearmetal topology --svg host.svg
  nearmetal topology --root node17.tar.gz --json
  lstopo node17.xml && nearmetal topology --hwloc node17.xml`,
		Args: noArgs,
	}
	root := cmd.Flags().String("root", "", "`HOST`: a folder with sys/ and proc/ in it, an archive, hwloc's XML or a description, instead of this host")
	xml := cmd.Flags().String("hwloc", "", "hwloc's XML, `FILE`, as lstopo writes it, instead of this host")
	svg := cmd.Flags().String("svg", "", "write a picture to `FILE`")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *root != "" && *xml != "" {
			return usagef("--root and --hwloc are both given: one host is shown")
		}
		h, err := openHost(*root, *xml)
		if err != nil {
			return err
		}
		if *svg != "" {
			pic := topology.Picture{Title: "topology of " + h.Name, Hosts: []*topology.Host{h}}
			if err := wholefile.Write(*svg, pic.SVG); err != nil {
				return err
			}
		}
		switch {
		case *asJSON:
			return terminal.PrintJSON(cmd.OutOrStdout(), h)
		case *svg == "":
			_, err = io.WriteString(cmd.OutOrStdout(), h.Text())
		}
		return err
	}
	cmd.AddCommand(newTopologyGatherCommand())
	return cmd
}

// openHost reads a host from where the flags say.
func openHost(root, xml string) (*topology.Host, error) {
	switch {
	case xml != "":
		return topology.ReadHwloc(xml)
	case root != "":
		return topology.Open(root)
	}
	return topology.Read("/")
}

func newTopologyGatherCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gather [FILE.tar.gz]",
		Short: "Capture this host's topology in a file that can be sent",
		Long: `Writes the files of /sys and /proc that describe the topology into an archive
(default NAME.tar.gz; - is standard output). It holds no host name, addresses of
network cards, serial numbers, users or command lines; NAME stands in it as the
host's name. The bytes are the same each time for the same machine.`,
		Example: "  nearmetal topology gather --name node17\n  nearmetal topology gather - | ssh admin 'cat >node17.tar.gz'",
		Args:    rangeArgs(0, "FILE.tar.gz"),
	}
	name := cmd.Flags().String("name", "host", "`NAME` of the host in the archive")
	root := cmd.Flags().String("root", "/", "`DIR` with sys/ and proc/ in it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := *name + ".tar.gz"
		if len(args) == 1 {
			file = args[0]
		}
		write := func(w io.Writer) error {
			z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
			if err != nil {
				return err
			}
			if err := topology.Gather(*root, z, *name); err != nil {
				return err
			}
			return z.Close()
		}
		if file == "-" {
			return write(cmd.OutOrStdout())
		}
		if filepath.Base(file) != file && len(args) == 0 {
			return usagef("--name %q is not a name", *name)
		}
		return wholefile.Write(file, write)
	}
	return cmd
}
