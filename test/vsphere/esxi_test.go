package vsphere

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// esxi is a host that stands in for one with ESXi: a real ssh server, in namespaces of its own, with programs that print what ESXi's print.
// state are the files that they keep; ssh knows the host as esx1.
func esxi(t *testing.T, files map[string]string) (state string) {
	t.Helper()
	if os.Getuid() != 0 {
		without(t, fmt.Errorf("namespaces need root"))
	}
	for _, p := range []string{"/usr/sbin/sshd", "ssh", "ssh-keygen", "unshare"} {
		if _, err := exec.LookPath(p); err != nil {
			without(t, err)
		}
	}
	dir := t.TempDir()
	state = filepath.Join(dir, "state")
	programs, err := filepath.Abs("testdata/esxi")
	if err == nil {
		err = os.Mkdir(state, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"known": "esx1 " + string(public),
		"config": fmt.Sprintf("Host esx1\n HostName 127.0.0.1\n Port %d\n HostKeyAlias esx1\n ControlMaster auto\n ControlPersist yes\n ControlPath %s/m\nHost *\n IdentityFile %s/user\n IdentitiesOnly yes\n UserKnownHostsFile %s/known\n StrictHostKeyChecking yes\n",
			port, dir, dir, dir),
		"ssh": "#!/bin/sh\nexec " + ssh + " -F " + dir + "/config \"$@\"\n",
		"sshd": fmt.Sprintf("ListenAddress 127.0.0.1\nPort %d\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"+
			"PermitRootLogin prohibit-password\nSetEnv PATH=/opt/mellanox/bin:/usr/bin:/bin STATE=%s\n", port, dir, dir, state),
	}
	for name, text := range files {
		texts["state/"+name] = text
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "-m", "--kill-child", "--fork", "sh", "-ec",
		`mount -t tmpfs run /run; mkdir /run/sshd; mount -t tmpfs opt /opt; mkdir -p /opt/mellanox/bin; cp "$1"/* /opt/mellanox/bin; exec /usr/sbin/sshd -D -e -f "$2/sshd"`, "sh", programs, dir)
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for { // an ssh server says nothing when it is up
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			break
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(said.Name())
			t.Fatalf("%v: %s", err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Cleanup(func() { exec.Command(filepath.Join(dir, "ssh"), "-O", "exit", "esx1").Run() })
	return state
}

// The packages, firmware and driver of a host with ESXi are read by ssh. What fixes them is shown with ESXi's own commands, run only with
// --fix, and read back; the boot is refused outside maintenance mode.
func TestESXi(t *testing.T) {
	state := esxi(t, map[string]string{
		"vibs":        "mft                            4.18.1.14-0                           MEL     PartnerSupported  2022-03-01    host\n",
		"parameters":  "DRSS=4\n",
		"firmware":    "VFS=0\nSRIOV='False(0)'\n",
		"maintenance": "Disabled\n",
	})
	expect := func(code int, args []string, want ...string) {
		t.Helper()
		out, errs, got := run(t, "", append([]string{"check", "--esxi", "esx1"}, args...)...)
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(out+errs), " "), w) {
				t.Errorf("%v: no %q in\n%s%s", args, w, out, errs)
			}
		}
		if got != code {
			t.Errorf("%v: %d: %s%s", args, got, out, errs)
		}
	}
	ran := func() string {
		text, _ := os.ReadFile(filepath.Join(state, "run"))
		var list []string
		for _, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, " set ") || strings.Contains(line, " install ") || strings.Contains(line, " reboot ") {
				list = append(list, line)
			}
		}
		return strings.Join(list, "\n")
	}
	max := `esxcli system module parameters set -m nmlx5_core -p "DRSS=4 max_vfs=8"`
	firmware := "/opt/mellanox/bin/mlxconfig -d mt4119_pciconf0 -y set SRIOV_EN=1 NUM_OF_VFS=8"
	expect(0, nil, "esx1, kernel VMware ESXi 8.0.2 Releasebuild-22380479", "esxi.tools: nmst: not installed", "esxi.driver: nmlx5-core: not installed",
		"esxi.firmware: mt4119_pciconf0: LINK_TYPE_P1=IB(1) LINK_TYPE_P2=ETH(2) NUM_OF_VFS=0 SRIOV_EN=False(0)", "fix: "+firmware,
		"esxi.link: mt4119_pciconf0: LINK_TYPE_P1=IB(1) LINK_TYPE_P2=ETH(2)", "esxi.max-vfs: max_vfs=", "fix: "+max, "esxi.reboot: nothing does")
	expect(0, []string{"--fix", "--dry-run"}, "Would be run on esx1:", firmware, max, "Left to do by hand:", "esxi.driver")
	expect(125, []string{"--fix"}, "pass --yes")
	if did := ran(); did != "" {
		t.Fatalf("it has changed: %s", did)
	}
	expect(0, []string{"--fix", "--yes"}, "mlxconfig -d mt4119_pciconf0 -y set SRIOV_EN=0 NUM_OF_VFS=0'", `-p "DRSS=4"'`)
	expect(0, []string{"--fix", "--yes", "esxi.driver", "--bundle", "/vmfs/volumes/ds1/Mellanox-nmlx5_4.23.0.66.zip"}, "esxcli software vib remove -n nmlx5-core'")
	expect(0, nil, "ok esxi.firmware", "ok esxi.max-vfs: max_vfs=8", "esxi.reboot: packages; mt4119_pciconf0: NUM_OF_VFS SRIOV_EN")
	expect(125, []string{"--fix", "--yes", "esxi.reboot"}, "not in maintenance mode")
	if err := os.WriteFile(filepath.Join(state, "maintenance"), []byte("Enabled\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(0, []string{"--fix", "--yes"}, "Nothing to run.", "esxi.reboot") // a boot is named, or it is not
	expect(0, []string{"--fix", "--yes", "esxi.reboot"}, "esxcli system shutdown reboot -r nearmetal")
	expect(0, []string{"--only", "esxi.driver"}, "ok esxi.driver: nmlx5-core: 4.23.0.66-1OEM.800.1.0.20613240")
	want := "mlxconfig -d mt4119_pciconf0 -y set SRIOV_EN=1 NUM_OF_VFS=8\nesxcli system module parameters set -m nmlx5_core -p DRSS=4 max_vfs=8\n" +
		"esxcli software vib install -d /vmfs/volumes/ds1/Mellanox-nmlx5_4.23.0.66.zip\nesxcli system shutdown reboot -r nearmetal"
	if did := ran(); did != want {
		t.Errorf("run there:\n%s\nwant:\n%s", did, want)
	}
	for _, x := range []struct {
		code int
		args string
		want string
	}{
		{125, "check --esxi esx2", "Could not resolve hostname esx2"},
		{2, "check --esxi -oProxyCommand=x", "is not a host's name"},
		{2, "check --esxi esx1 --undo", "cannot be given together"},
		{2, "check --esxi esx1 --only memory.thp", "is not a check of ESXi hosts"},
		{2, "check --esxi esx1 --fix --bundle /vmfs/volumes/a;b.zip esxi.driver", "is not /vmfs/volumes/"},
		{2, "check --esxi esx1 --fix --bundle /vmfs/volumes/ds1/a.zip", "--bundle goes with --fix and one of"},
		{2, "check --bundle /vmfs/volumes/ds1/a.zip", "--bundle goes with --esxi"},
	} {
		if out, errs, code := run(t, "", strings.Fields(x.args)...); code != x.code || !strings.Contains(errs, x.want) || strings.Count(errs, "\n") > 1 && code == 125 {
			t.Errorf("%s: %d, %s%s\nwant %d, %s", x.args, code, out, errs, x.code, x.want)
		}
	}
}
