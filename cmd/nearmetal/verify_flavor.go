package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/cloud"
	"nearmetal/internal/text"
	"nearmetal/internal/verify"
)

// verifyFlavor compares this VM, or a captured tree, with an OpenStack flavor.
func verifyFlavor(cmd *cobra.Command, file, root string) (*verify.Report, error) {
	var in io.Reader = cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	list, err := openstack.ReadFlavors(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text.Clean(file), err)
	}
	i := cloud.ReadInstance(cmd.Context(), root)
	f, err := cloud.Pick(list, i)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text.Clean(file), err)
	}
	return cloud.Verify(cmd.Context(), root, f, i)
}
