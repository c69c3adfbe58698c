package vsphere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/guest"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/text"
)

// keys are the key pair with which this cluster's owner logs in if it has a password of the guests with which to
// transfer the key.
type keys struct {
	once    sync.Once
	private string // path of its file
	public  string // its line for authorized_keys
	err     error
}

// make generates the pair in a directory, which is removed with the cluster.
func (k *keys) make(dir string) error {
	k.once.Do(func() {
		k.private = filepath.Join(dir, "vsphere.key")
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nearmetal", "-f", k.private).CombinedOutput()
		if err != nil {
			k.err = fmt.Errorf("ssh-keygen: %w: %s", err, text.OneLine(string(out)))
			return
		}
		var text []byte
		text, k.err = os.ReadFile(k.private + ".pub")
		k.public = strings.TrimSpace(string(text))
	})
	return k.err
}

// awaitTools waits until VMware Tools run in the guest and report the address that the guest was given.
func (i *instance) awaitTools(ctx context.Context) error {
	want := i.address().Addr().String()
	now, err := i.awaitGuest(ctx, func(g *guestState) bool { return g.tools && slices.Contains(g.addresses, want) })
	switch {
	case err == nil:
		i.log.Say("VMware Tools run, at %s", want)
		return nil
	case ctx.Err() == nil:
		return err
	case !now.tools:
		return noTools(err)
	case len(now.addresses) == 0:
		return fmt.Errorf("%w: VMware Tools report no address of it: vCenter's customization is to set %s, which needs perl or cloud-init in the template", err, want)
	}
	return fmt.Errorf("%w: VMware Tools report the address %s, and not %s, which vCenter's customization was to set: that needs perl or cloud-init in the template", err, now.some(), want)
}

// noTools returns the error of a wait for VMware Tools that timed out.
func noTools(err error) error {
	return fmt.Errorf("%w: VMware Tools do not run in it: the template needs open-vm-tools", err)
}

// Address waits until VMware Tools report the DHCP address of the VM's first card.
func (i *instance) Address(ctx context.Context) (netip.Prefix, error) {
	now, err := i.awaitGuest(ctx, func(g *guestState) bool { return g.tools && g.own.IsValid() })
	switch {
	case err == nil:
		i.mu.Lock()
		i.card.Address = now.own
		i.mu.Unlock()
		i.log.Say("VMware Tools run, by DHCP at %s", now.own)
		return now.own, nil
	case ctx.Err() == nil:
		return netip.Prefix{}, err
	case !now.tools:
		return netip.Prefix{}, noTools(err)
	case len(now.addresses) == 0:
		return netip.Prefix{}, fmt.Errorf("%w: VMware Tools report no address of it: is there a DHCP server on its network?", err)
	}
	return netip.Prefix{}, fmt.Errorf("%w: VMware Tools report the address %s, and none from DHCP on its card %s", err, now.some(), i.card.MAC)
}

// some returns some of the addresses, for an error.
func (g *guestState) some() string {
	return text.OneLine(strings.Join(g.addresses[:min(len(g.addresses), 4)], ", "))
}

// awaitGuest waits until enough accepts the state reported by VMware Tools, and returns the last one.
func (i *instance) awaitGuest(ctx context.Context, enough func(*guestState) bool) (now guestState, err error) {
	// The state before the first change.
	var vm mo.VirtualMachine
	if err := i.c.retrieve(ctx, i.vm, []string{"guest"}, &vm); err != nil && ctx.Err() == nil {
		return now, i.c.explain("read the guest of VM "+i.name, err)
	}
	i.mu.Lock()
	if g := vm.Guest; g != nil {
		i.seen.tools = i.seen.tools || g.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
		i.seen.nics(g.Net, i.card.MAC)
		if g.IpAddress != "" && !slices.Contains(i.seen.addresses, g.IpAddress) {
			i.seen.addresses = append(i.seen.addresses, g.IpAddress)
		}
	}
	i.mu.Unlock()
	for {
		i.mu.Lock()
		now = i.seen
		now.addresses = slices.Clone(now.addresses)
		news := i.news
		i.mu.Unlock()
		if enough(&now) {
			return now, nil
		}
		select {
		case <-news:
		case <-i.done:
			return now, errors.New("it has ended")
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
	}
}

// guestPause is the time between queries whether a program in a guest has ended, because the API has no other way.
const guestPause = 300 * time.Millisecond

// handOver copies the cluster's public key into the guest by vCenter, and returns the guest's host keys, each as a
// line for known_hosts without the name. Both are sent over vCenter's own connection, whose certificate was verified.
func (i *instance) handOver(ctx context.Context, user, password, public string) ([]string, error) {
	auth := &types.NamePasswordAuthentication{Username: user, Password: password}
	files, err := guest.NewOperationsManager(i.c.client.Client, i.vm).FileManager(ctx)
	if err != nil {
		return nil, i.c.explain("use guest operations of VM "+i.name, err)
	}
	programs, err := guest.NewOperationsManager(i.c.client.Client, i.vm).ProcessManager(ctx)
	if err != nil {
		return nil, i.c.explain("use guest operations of VM "+i.name, err)
	}
	base := "/tmp/nearmetal-" + i.mark[:16]
	script := fmt.Sprintf(`#!/bin/sh
umask 077
rm -f "$0"
home=$(getent passwd "$(id -un)" | cut -d: -f6)
mkdir -p "$home/.ssh" && echo '%s' >>"$home/.ssh/authorized_keys" && cat /etc/ssh/ssh_host_*_key.pub >%s.keys
`, public, base)
	if err := i.upload(ctx, files, auth, base+".sh", []byte(script)); err != nil {
		return nil, i.guestError("write a file in the guest", user, err)
	}
	code, err := i.run(ctx, programs, auth, "/bin/sh", base+".sh")
	if err != nil {
		return nil, i.guestError("run a program in the guest", user, err)
	}
	if code != 0 {
		return nil, fmt.Errorf("VM %s: the guest does not take an ssh key for %s, or has no ssh server with keys (exit status %d)", i.plan.Name, user, code)
	}
	text, err := i.download(ctx, files, auth, base+".keys")
	if err != nil {
		return nil, i.guestError("read a file in the guest", user, err)
	}
	files.DeleteFile(ctx, auth, base+".keys") // only cleanup: the disk is removed with the VM
	var list []string
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && (strings.HasPrefix(f[0], "ssh-") || strings.HasPrefix(f[0], "ecdsa-")) && !strings.ContainsAny(f[1], "@|*,") && len(list) < 16 {
			list = append(list, f[0]+" "+f[1])
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("VM %s: its ssh server has no host keys", i.plan.Name)
	}
	return list, nil
}

// guestError converts a failure of guest operations into an error.
func (i *instance) guestError(what, user string, err error) error {
	var login *types.InvalidGuestLogin
	if _, ok := fault.As(err, &login); ok {
		return fmt.Errorf("VM %s: the guest does not let %s in: %s has another password than the template", i.plan.Name, user, varGuest)
	}
	return i.c.explain(fmt.Sprintf("%s of VM %s (%s)", what, i.plan.Name, i.name), err)
}

// upload writes a file of a guest, mode 0600.
func (i *instance) upload(ctx context.Context, m *guest.FileManager, auth types.BaseGuestAuthentication, path string, text []byte) error {
	to, err := m.InitiateFileTransferToGuest(ctx, auth, path, &types.GuestPosixFileAttributes{Permissions: 0o600}, int64(len(text)), true)
	if err != nil {
		return err
	}
	u, err := m.TransferURL(ctx, to)
	if err != nil {
		return err
	}
	p := soap.DefaultUpload
	p.ContentLength = int64(len(text))
	return i.c.client.Client.Upload(ctx, bytes.NewReader(text), u, &p)
}

// guestFileMost bounds the bytes that are read of a guest's file.
const guestFileMost = 64 << 10

func (i *instance) download(ctx context.Context, m *guest.FileManager, auth types.BaseGuestAuthentication, path string) ([]byte, error) {
	from, err := m.InitiateFileTransferFromGuest(ctx, auth, path)
	if err != nil {
		return nil, err
	}
	u, err := m.TransferURL(ctx, from.Url)
	if err != nil {
		return nil, err
	}
	r, _, err := i.c.client.Client.Download(ctx, u, &soap.DefaultDownload)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, guestFileMost))
}

// run runs a program in a guest, and returns its exit status.
func (i *instance) run(ctx context.Context, m *guest.ProcessManager, auth types.BaseGuestAuthentication, program, args string) (int32, error) {
	pid, err := m.StartProgram(ctx, auth, &types.GuestProgramSpec{ProgramPath: program, Arguments: args})
	if err != nil {
		return 0, err
	}
	for {
		list, err := m.ListProcesses(ctx, auth, []int64{pid})
		if err != nil {
			return 0, err
		}
		for _, p := range list {
			if p.Pid == pid && p.EndTime != nil {
				return p.ExitCode, nil
			}
		}
		select {
		case <-time.After(guestPause):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
