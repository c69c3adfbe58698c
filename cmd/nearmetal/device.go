package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/device"
	"nearmetal/internal/journal"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newDeviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "device COMMAND",
		GroupID: groupHost,
		Short:   "Show, make and hand over the functions of cards that VMs are given",
		Long: `Physical and virtual functions (SR-IOV) of this host's cards: which there are,
how many VFs a card has, what they are called, and whose they are. A cluster
file names those that its VMs get (devices:); docs/device.md says how.

Showing needs no privileges, changing does. Each change is written down before
it is made: release and disable-vfs undo, and nearmetal host recover does after
a kill.`,
		Example: `  nearmetal device list
  nearmetal device enable-vfs mlx5_0 8
  nearmetal device bind 0000:41:00.1 --user ann
  nearmetal device release 0000:41:00.1`,
	}
	renamed(cmd, "root", "from")
	root := cmd.PersistentFlags().String("from", "", "`DIR` with sys/, proc/ and dev/ in it, instead of this host")
	open := func() (*device.Host, error) { return device.Open(*root, 0) }
	for _, sub := range []func(func() (*device.Host, error)) *cobra.Command{
		newDeviceListCommand, newDeviceShowCommand, newDeviceEnableCommand, newDeviceDisableCommand,
		newDeviceSetCommand, newDeviceBindCommand, newDeviceReleaseCommand,
	} {
		cmd.AddCommand(sub(open))
	}
	return cmd
}

// opener returns the host that the flags name.
type opener = func() (*device.Host, error)

// completeDevices completes the addresses of functions of a kind.
func completeDevices(open opener, kinds ...device.Kind) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		h, err := open()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _ := h.List(false)
		var out []string
		for _, f := range list {
			for _, k := range kinds {
				if f.Kind == k {
					out = append(out, f.Address+"\t"+strings.Join(append(f.RDMA, f.Net...), " "))
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func newDeviceListCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--all] [--json]",
		Short: "List cards and their VFs, and who holds them",
		Long: `Lists network and InfiniBand cards and whatever has VFs, each card followed by
its VFs: the driver that has it, NUMA node, IOMMU group, link and rate,
firmware, and which cluster or process uses it in a VM.`,
		Example: "  nearmetal device list\n  nearmetal device list --json",
		Args:    noArgs,
	}
	all := cmd.Flags().Bool("all", false, "show every PCI function")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := open()
		if err != nil {
			return err
		}
		list, err := h.List(*all)
		if err != nil {
			return err
		}
		if *asJSON {
			if list == nil {
				list = []*device.Function{}
			}
			return terminal.PrintJSON(cmd.OutOrStdout(), list)
		}
		t := terminal.NewTable("device", "kind", "name", "driver", "node", "group", "link", "rate", "state", "vfs", "firmware", "psid", "owner", "used by")
		for _, f := range list {
			t.Row(f.Address, f.Kind, strings.Join(append(f.RDMA, f.Net...), ","), f.Driver, orNone(f.Node), orNone(f.Group),
				f.Link, rate(f.Mbps), upDown(f), vfCount(f), f.Firmware, f.PSID, f.Owner, f.Holder)
		}
		return t.Print(cmd.OutOrStdout())
	}
	return cmd
}

// finishStep ends a step as successful, or as failed with err.
func finishStep(s *terminal.Step, err error) error {
	if err != nil {
		s.Fail()
	} else {
		s.Done()
	}
	return err
}

func orNone(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func rate(mbps int) string {
	switch {
	case mbps == 0:
		return ""
	case mbps%1000 == 0:
		return fmt.Sprintf("%d Gb/s", mbps/1000)
	}
	return fmt.Sprintf("%d Mb/s", mbps)
}

func upDown(f *device.Function) string {
	switch {
	case f.Up:
		return "up"
	case len(f.Net)+len(f.RDMA) > 0:
		return "down"
	}
	return ""
}

func vfCount(f *device.Function) string {
	if f.Kind != device.PF {
		return ""
	}
	return fmt.Sprintf("%d of %d", len(f.VFs), f.TotalVFs)
}

func newDeviceShowCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show DEVICE [--json]",
		Short:             "Show all that is known of a function",
		Long:              "Shows all that is known of a function, with a VF's attributes, a card's eswitch\nmode, and its firmware's settings where mstconfig is installed. DEVICE is a PCI\naddress, a network interface or an RDMA device.",
		Example:           "  nearmetal device show mlx5_0\n  nearmetal device show 41:00.1 --json",
		Args:              exactArgs("DEVICE"),
		ValidArgsFunction: completeDevices(open, device.PF, device.VF, device.Plain),
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := open()
		if err != nil {
			return err
		}
		d, err := h.Show(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), d)
		}
		t := terminal.NewTable("what", "value")
		f := d.Function
		for _, r := range [][2]string{
			{"device", f.Address}, {"kind", string(f.Kind)}, {"ids", fmt.Sprintf("%04x:%04x, class %06x", f.Vendor, f.Device, f.Class)},
			{"driver", f.Driver}, {"node", orNone(f.Node)}, {"IOMMU group", orNone(f.Group)}, {"others in the group", strings.Join(f.Others, " ")},
			{"physical function", f.PF}, {"VF number", orNone(f.Index)}, {"VFs", vfCount(f)}, {"their addresses", strings.Join(f.VFs, " ")},
			{"interfaces", strings.Join(f.Net, " ")}, {"MAC", f.MAC}, {"RDMA devices", strings.Join(f.RDMA, " ")}, {"node GUID", f.GUID},
			{"link", f.Link}, {"rate", rate(f.Mbps)}, {"state", upDown(f)}, {"firmware", f.Firmware}, {"PSID", f.PSID},
			{"group's file", f.VFIO}, {"owner", f.Owner}, {"used by", f.Holder},
		} {
			if r[1] != "" {
				t.Row(r[0], r[1])
			}
		}
		if d.Eswitch != "" {
			t.Row("eswitch mode", d.Eswitch)
		}
		for _, kv := range d.Settings() {
			t.Row(kv[0], kv[1])
		}
		return t.Print(cmd.OutOrStdout())
	}
	return cmd
}

func newDeviceEnableCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enable-vfs PF N",
		Short: "Give a card N virtual functions",
		Long: `Adds N virtual functions, which no driver of the host takes, to a physical
function. Their MAC addresses, or GUIDs on InfiniBand, are the same each time
for this host and VF. The command waits until all are there. The number of VFs
is gone with a reboot.`,
		Example:           "  nearmetal device enable-vfs mlx5_0 8\n  nearmetal device enable-vfs 0000:41:00.0 2",
		Args:              exactArgs("PF", "N"),
		ValidArgsFunction: completeDevices(open, device.PF),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 {
			return usagef("%q is not a number of VFs", args[1])
		}
		h, f, err := openDevice(open, args[0])
		if err != nil {
			return err
		}
		return changeDevice(cmd, "making VFs", func(ctx context.Context) error {
			return h.EnableVFs(ctx, f.Address, n)
		})
	}
	return cmd
}

// openDevice opens the host and finds a function of it.
func openDevice(open opener, name string) (*device.Host, *device.Function, error) {
	h, err := open()
	if err != nil {
		return nil, nil, err
	}
	f, err := h.Find(name)
	return h, f, err
}

// changeDevice applies a change to a function and shows it as the step what.
func changeDevice(cmd *cobra.Command, what string, change func(context.Context) error) error {
	p := progress(cmd)
	defer p.Close()
	step := p.Start(what)
	ctx, stop := interruptible()
	defer stop()
	return finishStep(step, change(ctx))
}

func newDeviceDisableCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "disable-vfs PF",
		Short:             "Take a card's virtual functions away",
		Long:              "Takes a physical function's VFs away, after undoing what was changed of them.\nNothing happens if a VM uses one.",
		Example:           "  nearmetal device disable-vfs mlx5_0",
		Args:              exactArgs("PF"),
		ValidArgsFunction: completeDevices(open, device.PF),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, f, err := openDevice(open, args[0])
		if err != nil {
			return err
		}
		return changeDevice(cmd, "taking VFs away", func(ctx context.Context) error {
			_, err := h.DisableVFs(ctx, f.Address)
			return err
		})
	}
	return cmd
}

func newDeviceBindCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bind VF [--user USER]",
		Short: "Hand a function to a user, for a VM",
		Long: `Binds a VF, or a whole function, to vfio-pci and hands its IOMMU group's file to
a user, who may then pass it through to a VM of a cluster. Functions that the
host itself uses, or whose IOMMU group holds others, are refused. Nothing else
is given to the user.`,
		Example:           "  nearmetal device bind 0000:41:00.1 --user ann",
		Args:              exactArgs("DEVICE"),
		ValidArgsFunction: completeDevices(open, device.VF, device.Plain),
	}
	name := cmd.Flags().String("user", "", "the `USER` who gets it: a name or a number (default who calls)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		uid, gid, err := userIDs(*name)
		if err != nil {
			return usagef("--user: %w", err)
		}
		h, f, err := openDevice(open, args[0])
		if err != nil {
			return err
		}
		return changeDevice(cmd, "binding "+f.Address, func(ctx context.Context) error {
			return h.Bind(ctx, f.Address, uid, gid)
		})
	}
	return cmd
}

// userIDs returns the numeric IDs of a user, given by name or number; "" is the caller.
func userIDs(name string) (uid, gid int, err error) {
	if name == "" {
		return os.Getuid(), os.Getgid(), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return 0, 0, fmt.Errorf("there is no user %q", name)
		}
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err
}

func newDeviceReleaseCommand(open opener) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "release DEVICE",
		Short:             "Undo what was changed of a function",
		Long:              "Undoes what bind and set changed of a function: its driver, its group's owner,\nits attributes. A function that a VM uses is left as it is.",
		Example:           "  nearmetal device release 0000:41:00.1",
		Args:              exactArgs("DEVICE"),
		ValidArgsFunction: completeDevices(open, device.VF, device.Plain),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, f, err := openDevice(open, args[0])
		if err != nil {
			return err
		}
		did, err := h.Release(f.Address)
		sayUndone(cmd, did)
		return err
	}
	return cmd
}

// sayUndone reports the undone changes, one line per change.
func sayUndone(cmd *cobra.Command, did []journal.Change) {
	if quiet(cmd) {
		return
	}
	for _, c := range did {
		if c.Kind == "file" && strings.HasPrefix(filepath.Base(filepath.Dir(c.Args["path"])), "devices") {
			continue // the lock file of a device's claims
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: undone: %s\n", text.Clean(c.String()))
	}
}
