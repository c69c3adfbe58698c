package vsphere

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/vcsim"
)

// VMware's vHPC toolkit 1.0.3 is used as an oracle. For each of its commands, testdata/toolkit.txt has its calls,
// setting by setting. `make test-vhpc` runs it on the same vCenter and compares; with -update it writes the file. The
// tests here compare nearmetal's own calls with these, and every difference has a reason.

// varToolkit names a Python in which the toolkit is installed.
const varToolkit = "NEARMETAL_VHPC_PYTHON"

// toolkitVM is the VM of the toolkit's commands.
const toolkitVM = "DC0_C0_RP0_VM1"

// gap is a difference, with its reason. what is a prefix of lines.
type gap struct{ what, why string }

// command is a command of the toolkit.
type command struct {
	args   string // FILE is replaced by a file with the text below
	file   string
	guest  bool                                      // it operates in a guest
	before func(*vcsim.Server)                       // prepares existing objects
	ours   func(context.Context, Part, string) error // on a host; nil: the calls of a cluster's start and end
	theirs []gap                                     // calls of the toolkit only
	mine   []gap                                     // calls of nearmetal only, on a host
}

// simVM returns a VM of the simulator.
func simVM(name string) *simulator.VirtualMachine {
	for _, e := range simulator.Map.All("VirtualMachine") {
		if v := e.(*simulator.VirtualMachine); v.Name == name {
			return v
		}
	}
	return nil
}

func efi(name string) { simVM(name).Config.Firmware = "efi" }

// cards replaces a VM's network cards.
func cards(name string, by *types.VirtualVmxnet3) {
	vm := simVM(name)
	var list []types.BaseVirtualDevice
	for _, d := range vm.Config.Hardware.Device {
		if c, ok := d.(types.BaseVirtualEthernetCard); !ok {
			list = append(list, d)
		} else if by != nil {
			by.VirtualEthernetCard = *c.GetVirtualEthernetCard()
			list = append(list, by)
		}
	}
	vm.Config.Hardware.Device = list
	if by == nil {
		vm.Network = nil
	}
}

// sized makes the toolkit's VM as large as nearmetal's, with EFI.
func sized(*vcsim.Server) {
	vm := simVM(toolkitVM)
	vm.Config.Hardware.NumCPU, vm.Config.Hardware.MemoryMB = 10, 40960
	efi(toolkitVM)
}

// clusterText is a cluster whose VM has the settings of the toolkit's commands below.
const clusterText = `
name: demo
backend: vsphere
root: backend
vms: [{name: mpi, count: 1, vcpus: 10, memory: 40GiB, devices: [{type: vf, pf: vmnic4}, {type: pci, address: '0000:3b:00.1'}]}]
network: {subnet: 10.77.0.0/16}
vsphere: {template: ` + vcsim.Template + `, portGroup: DC0_DVPG0, linked: true, datastore: LocalDS_0, gateway: 10.77.0.254, dns: [10.77.0.253]}
`

// calledForCluster returns nearmetal's calls for that cluster, from its start to its end. bare: the template has no
// network card; dynamic: vCenter chooses the whole function; more: addresses by DHCP, secure boot, a vGPU and a
// PVRDMA card.
func calledForCluster(t *testing.T, bare, dynamic, more bool) []string {
	t.Helper()
	s := vcsim.Start(t, vcsim.Options{})
	ctx := context.Background()
	template := simVM(vcsim.Template)
	efi(vcsim.Template)
	if bare {
		cards(vcsim.Template, nil)
	}
	a, err := ReadAccess("")
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCenter(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.release()
	if err := c.task(ctx, "snapshot", func(ctx context.Context) (*object.Task, error) {
		return object.NewVirtualMachine(c.client.Client, template.Self).CreateSnapshot(ctx, "s", "", false, false)
	}); err != nil {
		t.Fatal(err)
	}
	return settingsOf(t, s.Requests(func() {
		text := clusterText
		if more {
			text = strings.Replace(text, "gateway: 10.77.0.254", "dhcp: true, secureBoot: true, vgpu: "+vcsim.VGPU+", pvrdma: DC0_DVPG0", 1)
		}
		if dynamic {
			text = strings.Replace(text, "'0000:3b:00.1'", "'0000:3b:00.1', dynamic: true", 1)
		}
		l, err := begin(t, text)
		if err == nil {
			err = l.start(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		l.j.undo(t)
	}))
}

// calledForHost returns nearmetal's calls for a host's settings.
func calledForHost(t *testing.T, c *command) []string {
	t.Helper()
	s := vcsim.Start(t, vcsim.Options{})
	if c.before != nil {
		c.before(s)
	}
	return settingsOf(t, s.Requests(func() {
		if err := c.ours(context.Background(), Part{}, s.Host); err != nil {
			t.Fatal(err)
		}
	}))
}

// calledForGuest returns nearmetal's calls to run a program in a guest: the one that transfers a key.
func calledForGuest(t *testing.T) []string {
	t.Helper()
	s := vcsim.Start(t, vcsim.Options{Guests: true})
	ctx := context.Background()
	l, err := begin(t, fmt.Sprintf(`
name: post
backend: vsphere
root: backend
vms: [{name: vm, count: 1, vcpus: 2, memory: 4GiB}]
network: {subnet: %s}
vsphere: {template: %s, portGroup: DC0_DVPG0}
`, vcsim.GuestSubnet, vcsim.Template))
	if err != nil {
		t.Fatal(err)
	}
	defer l.j.undo(t)
	if err := l.start(ctx); err != nil {
		t.Fatal(err)
	}
	i := l.vms[0].(*instance)
	if err := i.awaitTools(ctx); err != nil {
		t.Fatal(err)
	}
	user, password, _ := strings.Cut(vcsim.GuestLogin, ":")
	return settingsOf(t, s.Requests(func() {
		if lines, err := i.handOver(ctx, user, password, "ssh-ed25519 AAAA nearmetal"); err != nil || len(lines) == 0 {
			t.Errorf("%v, %v", lines, err)
		}
	}))
}

// guestOn makes the toolkit's VM run a guest, on a host whose name resolves to the simulator.
func guestOn(s *vcsim.Server) {
	for _, h := range s.Hosts() {
		h.Name = "127.0.0.1"
	}
	ctx := context.Background()
	a, err := ReadAccess("")
	if err != nil {
		panic(err)
	}
	c, err := openCenter(ctx, a)
	if err != nil {
		panic(err)
	}
	defer c.release()
	vm := object.NewVirtualMachine(c.client.Client, simVM(toolkitVM).Self)
	for _, f := range []func(context.Context) (*object.Task, error){
		func(ctx context.Context) (*object.Task, error) {
			return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "x", Value: "y"}}})
		}, vm.PowerOn} {
		if err := c.task(ctx, "guest", f); err != nil {
			panic(err)
		}
	}
}

// runToolkit runs a command of the toolkit, and returns its calls.
func runToolkit(t *testing.T, c *command) []string {
	t.Helper()
	s := vcsim.Start(t, vcsim.Options{Guests: c.guest})
	if c.before != nil {
		c.before(s)
	}
	home := t.TempDir()
	host, port, _ := strings.Cut(s.Addr, ":")
	os.Mkdir(filepath.Join(home, "vhpc_toolkit"), 0o700)
	file := filepath.Join(home, "file")
	for name, text := range map[string]string{
		filepath.Join(home, "vhpc_toolkit", "vCenter.conf"): fmt.Sprintf("server: %s\nport: %s\nusername: %s\npassword: %s\n", host, port, vcsim.User, vcsim.Password),
		file: c.file} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"-c", "from vhpc_toolkit.command import command; command()"}, strings.Fields(strings.ReplaceAll(c.args, "FILE", file))...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv(varToolkit), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = home, append(os.Environ(), "HOME="+home), strings.NewReader("yes\nyes\nyes\n")
	var out []byte
	var err error
	list := s.Requests(func() { out, err = cmd.CombinedOutput() })
	if err != nil || bytes.Contains(out, []byte("[ERROR]")) || bytes.Contains(out, []byte("Traceback")) {
		t.Errorf("%s: %v\n%s", c.args, err, out)
	}
	return settingsOf(t, list)
}

// explained removes the lines with a reason from a list, and fails for a reason without a line.
func explained(t *testing.T, what string, lines []string, gaps []gap) []string {
	t.Helper()
	used := make([]bool, len(gaps))
	var rest []string
	for _, line := range lines {
		k := slices.IndexFunc(gaps, func(g gap) bool { return strings.Contains(line, g.what) })
		if k < 0 {
			rest = append(rest, line)
			continue
		}
		used[k] = true
	}
	for k, g := range gaps {
		if !used[k] {
			t.Errorf("%s: nothing differs in %q: %s", what, g.what, g.why)
		}
	}
	return rest
}

// without returns the lines of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// alone runs f with a vCenter of its own.
func alone(t *testing.T, what string, f func(*testing.T)) {
	t.Helper()
	t.Run(strings.Fields(what)[0], f)
}

// toolkitFile contains the toolkit's calls.
var toolkitFile = filepath.Join("testdata", "toolkit.txt")

// theirCalls reads toolkitFile.
func theirCalls(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(toolkitFile)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	at := ""
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			at = name
			calls[at] = nil
		} else if at != "" && line != "" {
			calls[at] = append(calls[at], line)
		}
	}
	return calls
}

// TestToolkit: each of the toolkit's commands and nearmetal make the same calls, except for the differences explained
// here.
func TestToolkit(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes seconds")
	}
	calls := theirCalls(t)
	var cluster []string
	for _, x := range []struct{ bare, dynamic, more bool }{{}, {bare: true}, {dynamic: true}, {more: true}} {
		alone(t, "a cluster", func(t *testing.T) { cluster = append(cluster, calledForCluster(t, x.bare, x.dynamic, x.more)...) })
	}
	var all []string
	for i := range commands {
		c := &commands[i]
		theirs, ok := calls[c.args]
		if !ok {
			t.Errorf("%s: %s does not have it", c.args, toolkitFile)
		}
		ours := cluster
		switch {
		case c.guest:
			if err := vcsim.GuestsWork(); err != nil {
				if os.Getenv("CI") == "true" {
					t.Error(err)
				}
				continue
			}
			alone(t, c.args, func(t *testing.T) { ours = calledForGuest(t) })
			for _, line := range explained(t, c.args, without(ours, theirs), c.mine) {
				t.Errorf("%s: only nearmetal: %s", c.args, line)
			}
		case c.ours != nil:
			alone(t, c.args, func(t *testing.T) { ours = calledForHost(t, c) })
			for _, line := range explained(t, c.args, without(ours, theirs), c.mine) {
				t.Errorf("%s: only nearmetal: %s", c.args, line)
			}
		default:
			all = append(all, theirs...)
		}
		for _, line := range explained(t, c.args, without(theirs, ours), c.theirs) {
			t.Errorf("%s: only the toolkit: %s", c.args, line)
		}
	}
	for _, line := range explained(t, "a cluster", without(cluster, all), ofVMs) {
		t.Errorf("only nearmetal: %s", line)
	}
}

// TestToolkitItself: the toolkit makes the calls in the file. It runs if make test-vhpc has installed the toolkit.
func TestToolkitItself(t *testing.T) {
	if os.Getenv(varToolkit) == "" {
		t.Skip("make test-vhpc runs it")
	}
	var b strings.Builder
	fmt.Fprintln(&b, "# What VMware's vHPC toolkit 1.0.3 calls, by its commands: METHOD SETTING = VALUE. make test-vhpc reads it from its requests.")
	calls := map[string][]string{}
	if !*update {
		calls = theirCalls(t)
	}
	for i := range commands {
		c := &commands[i]
		var now []string
		alone(t, c.args, func(t *testing.T) { now = runToolkit(t, c) })
		fmt.Fprintf(&b, "\n== %s\n", c.args)
		for _, line := range now {
			fmt.Fprintln(&b, line)
		}
		if !*update && !slices.Equal(now, calls[c.args]) {
			t.Errorf("%s: calls now, and not in the file: %q; the reverse: %q", c.args, without(now, calls[c.args]), without(calls[c.args], now))
		}
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(toolkitFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
