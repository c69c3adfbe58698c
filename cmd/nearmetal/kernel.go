package main

import (
	"github.com/spf13/cobra"

	"nearmetal/internal/guest/image"
	"nearmetal/internal/guest/kernelfetch"
	"nearmetal/internal/host/cache"
)

func newKernelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kernel",
		GroupID: groupHost,
		Short:   "The kernel that VMs are started with",
		Long:    `The kernel that VMs are started with: a copy where /boot keeps it from you.`,
		Example: "  nearmetal kernel fetch",
	}
	cmd.AddCommand(newKernelFetchCommand())
	return cmd
}

func newKernelFetchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch [VERSION]",
		Short: "Get a copy of a kernel that only root may read in /boot",
		Long: `Gets the kernel of an installed package from the distribution's archive, and
keeps it in your cache, where nearmetal finds it. Ubuntu closes /boot/vmlinuz-*
to users, though everybody may download the package. Its modules are those of
the system. Root is not needed: apt-get downloads the package, which is verified
by the signed lists of the system; nothing is installed. Without a VERSION it
is the running kernel's, or the newest one that is closed. Systems without apt
have no such copy: the administrator has to open the file.`,
		Example: "  nearmetal kernel fetch\n  nearmetal kernel fetch 6.8.0-48-generic",
		Args:    rangeArgs(0, "VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := progress(cmd)
			defer p.Close()
			version := ""
			if len(args) > 0 {
				version = args[0]
			} else {
				var others bool
				var err error
				if version, others, err = (image.Finder{}).Closed(); err != nil {
					return err
				}
				if version == "" && others {
					p.Printf("no kernel in /boot is closed to you: there is nothing to fetch")
					return nil
				}
				if version == "" {
					_, err := image.FindKernel("")
					return err
				}
			}
			d, err := cache.Open()
			if err != nil {
				return err
			}
			ctx, done := interruptible()
			defer done()
			f, err := kernelfetch.Fetch(ctx, d, version)
			if err != nil {
				return err
			}
			p.Printf("kernel %s of %s is in %s", f.Version, f.Package, d.Path())
			return nil
		},
	}
}
