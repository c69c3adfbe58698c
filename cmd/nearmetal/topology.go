package main

import (
	"context"
	"fmt"
	"io"
	"os"
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
captured tree, from an archive of nearmetal topology gather or of
hwloc-gather-topology (.tar.gz, .tar.bz2), from hwloc's XML, or from a
description (.machine). --vsphere reads an ESXi host by its name in
the vCenter of GOVC_URL (docs/vsphere.md).`,
		Example: `  nearmetal topology
  nearmetal topology -o host.svg
  nearmetal topology --from node17.tar.gz --json
  lstopo node17.xml && nearmetal topology --from node17.xml
  nearmetal topology --vsphere esx1.example.com`,
		Args: noArgs,
	}
	renamed(cmd, "root", "from")
	root := cmd.Flags().String("from", "", "`HOST`: a directory with sys/ and proc/ in it, an archive, hwloc's XML or a description, instead of this host")
	xml := cmd.Flags().String("hwloc", "", "the older form of --from with hwloc's XML")
	if err := cmd.Flags().MarkHidden("hwloc"); err != nil {
		panic(err)
	}
	vsphere := cmd.Flags().String("vsphere", "", "the ESXi `HOST` of that name or path in vCenter, instead of this host")
	o := addOutputFlags(cmd, []string{"text", "json", "svg"}, "`FORMAT`: text, json, or svg for a picture")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		format, err := o.settle(cmd)
		if err != nil {
			return err
		}
		if *root != "" && *xml != "" {
			return usagef("--from and --hwloc are both given: one host is shown")
		}
		if *vsphere != "" && *root+*xml != "" {
			return usagef("--vsphere and another host are both given: one host is shown")
		}
		h, err := openHost(cmd.Context(), *root, *xml, *vsphere)
		if err != nil {
			return err
		}
		pic := topology.Picture{Title: "topology of " + h.Name, Hosts: []*topology.Host{h}}
		if *o.svg != "" {
			if err := wholefile.Write(*o.svg, pic.SVG); err != nil || format == "text" && *o.file == "" {
				return err
			}
		}
		return o.write(cmd, func(w io.Writer) error {
			switch format {
			case "json":
				return terminal.PrintJSON(w, h)
			case "svg":
				return pic.SVG(w)
			}
			_, err := io.WriteString(w, h.Text())
			return err
		})
	}
	cmd.AddCommand(newTopologyGatherCommand())
	return cmd
}

// openHost reads a host from the source that the flags name.
func openHost(ctx context.Context, root, xml, vsphere string) (*topology.Host, error) {
	switch {
	case vsphere != "":
		v, err := inVSphere()
		if err != nil {
			return nil, err
		}
		return v.Topology(ctx, vsphere)
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
host's name. The bytes are the same each time for the same machine.

--vsphere captures an ESXi host as vCenter describes it (default file
NAME.vsphere.tar.gz), in the form of govc object.save. With --anonymous names,
addresses, serial numbers, licences, datastores and networks are left out.`,
		Example: `  nearmetal topology gather --name node17
  nearmetal topology gather - | ssh admin 'cat >node17.tar.gz'
  nearmetal topology gather --vsphere esx1.example.com --anonymous --name esx`,
		Args: rangeArgs(0, "FILE.tar.gz"),
	}
	name := cmd.Flags().String("name", "host", "`NAME` of the host in the archive")
	renamed(cmd, "root", "from")
	root := cmd.Flags().String("from", "/", "`DIR` with sys/ and proc/ in it")
	vsphere := cmd.Flags().String("vsphere", "", "the ESXi `HOST` of that name or path in vCenter, instead of this host")
	anonymous := cmd.Flags().Bool("anonymous", false, "with --vsphere: leave out whatever shows whose host it is")
	exclude(cmd, "from", "vsphere")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *anonymous && *vsphere == "" {
			return usagef("--anonymous goes with --vsphere: other captures are anonymous")
		}
		file := *name + ".tar.gz"
		var gather func(w io.Writer) error
		if *vsphere != "" {
			v, err := inVSphere()
			if err != nil {
				return err
			}
			if gather, err = v.Gather(cmd.Context(), *vsphere, *name, *anonymous); err != nil {
				return err
			}
			file = *name + ".vsphere.tar.gz"
		}
		if len(args) == 1 {
			file = args[0]
		}
		if _, err := os.Stat(*root); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		write := func(w io.Writer) error {
			if gather != nil {
				return gather(w)
			}
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
