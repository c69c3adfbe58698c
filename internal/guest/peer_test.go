package guest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/guest/channel"
)

// hostileVM returns a VM whose agent was replaced: the caller sends its messages.
func hostileVM(t *testing.T, sb *channel.Switchboard, name string) *channel.Mux {
	t.Helper()
	a, b := net.Pipe()
	host, err := channel.New(a, channel.Options{Name: name, Initiator: true, Accept: sb.FromVM(name)})
	if err != nil {
		t.Fatal(err)
	}
	vm, err := channel.New(b, channel.Options{Name: "the host"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vm.Close(); host.Close() })
	return vm
}

// asks has the VM request a program in vm1, and returns its output or the reason for the refusal.
func asks(t *testing.T, vm *channel.Mux, kind string, h channel.Fields) (string, error) {
	t.Helper()
	s, err := vm.Open(kind, append(channel.Fields{{Key: "vm", Value: "vm1"}}, h...))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.CloseWrite(channel.LaneData)
	b, err := io.ReadAll(s.Lane(channel.LaneData))
	return strings.TrimSpace(string(b)), err
}

// TestRootInOneVM: root in a VM is not root in the job's other VMs: with its own agent it requests a program as root,
// as another user, in another group, with more than the job's limits, or something else.
func TestRootInOneVM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the agent of a VM is root; here it is not, and can take on no user")
	}
	const uid, gid = 65534, 65534
	sb := channel.NewSwitchboard()
	sb.Policy = NewPeerPolicy(uid, gid, []uint32{65533}, []Rlimit{{Name: "nofile", Soft: 100, Hard: 200}}).Check
	vm1 := startAgent(t, "vm1", AgentOptions{Accept: sb.FromVM("vm1")})
	sb.AddVM("vm1", vm1.Mux())
	evil := hostileVM(t, sb, "vm0")
	const print = "id -u; id -G; ulimit -Sn; ulimit -Hn"
	ask := func(more ...string) channel.Fields {
		h := channel.Fields{{Key: "arg", Value: "/bin/sh"}, {Key: "arg", Value: "-c"}, {Key: "arg", Value: print}}
		for _, m := range more {
			k, v, _ := strings.Cut(m, "=")
			h.Add(k, v)
		}
		return h
	}
	user := []string{"uid=65534", "gid=65534"}
	for name, c := range map[string]struct {
		kind string
		h    channel.Fields
		want string
	}{
		"as root":              {"exec", ask("uid=0", "gid=0"), `user "0" may not run programs in vm1 from another VM`},
		"root at last":         {"exec", ask("uid=65534", "gid=65534", "uid=0"), `sent the field "uid" twice`},
		"as another":           {"exec", ask("uid=1000", "gid=65534"), `user "1000" may not`},
		"a uid that wraps":     {"exec", ask("uid=4295032830", "gid=65534"), "may not"},
		"as nobody in root":    {"exec", ask("uid=65534", "gid=0"), `group "0" may not`},
		"with group disk":      {"exec", ask(append(user, "group=6")...), `group "6" may not`},
		"without a user":       {"exec", ask(), "does not say which user asks"},
		"limits of its own":    {"exec", ask(append(user, "rlimit=nofile 1000000 1000000")...), `may not ask another VM for "rlimit"`},
		"other CPUs":           {"exec", ask(append(user, "cpu=0")...), `may not ask another VM for "cpu"`},
		"a connection of root": {"exec", ask(append(user, "connect=FD 127.0.0.1:22")...), `may not ask another VM for "connect"`},
		"a terminal":           {"exec", ask(append(user, "tty=1")...), `may not ask another VM for "tty"`},
		"the end of a VM":      {"poweroff", nil, "a VM may not open streams of kind poweroff"},
		"a file":               {"push", channel.Fields{{Key: "path", Value: "/etc/shadow"}, {Key: "uid", Value: "65534"}, {Key: "gid", Value: "65534"}}, "a VM may not open streams of kind push"},
		"a connection":         {"tcp", channel.Fields{{Key: "addr", Value: "127.0.0.1:22"}}, "a VM may not open streams of kind tcp"},
	} {
		out, err := asks(t, evil, c.kind, c.h)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %s", name, out, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
	// The job's user can run a launcher's daemon, with the job's limits.
	out, err := asks(t, evil, "exec", ask(append(user, "group=65533")...))
	if want := "65534\n65534 65533\n100\n200"; out != want || err != nil {
		t.Errorf("as the job's user: %q, %v; want %q", out, err, want)
	}
	// The limits are those of the job's last command in the requesting VM.
	vm0 := startAgent(t, "vm0", AgentOptions{})
	sb.AddVM("vm0", vm0.Mux())
	near, far := net.Pipe()
	owner, err := sb.Client(near, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	client, err := Dial(context.Background(), far, "the cluster")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	e := me("true")
	e.UID, e.GID, e.Rlimits = uid, gid, []Rlimit{{Name: "nofile", Soft: 50, Hard: 60}}
	run(t, client.VM("vm0"), e, "")
	root := me("true")
	root.Rlimits = []Rlimit{{Name: "nofile", Soft: 500, Hard: 600}}
	run(t, client.VM("vm0"), root, "") // an administrator's limits are not the job's
	if out, err = asks(t, evil, "exec", ask(user...)); out != "65534\n65534\n50\n60" || err != nil {
		t.Errorf("after a command: %q, %v", out, err)
	}
}

// TestLauncherInVM: the remote shell of a launcher in a VM, run by a user without privileges, starts a daemon in
// another VM with the user's name and groups; root's is rejected.
func TestLauncherInVM(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the agent of a VM is root; here it is not, and can take on no user")
	}
	const uid = 65534
	sb := channel.NewSwitchboard()
	sb.Policy = NewPeerPolicy(uid, uid, []uint32{65533}, nil).Check
	vm0 := startAgent(t, "vm0", AgentOptions{Accept: sb.FromVM("vm0")})
	vm1 := startAgent(t, "vm1", AgentOptions{Accept: sb.FromVM("vm1")})
	sb.AddVM("vm0", vm0.Mux())
	sb.AddVM("vm1", vm1.Mux())
	for _, dir := range []string{vm0.socket[:strings.LastIndexByte(vm0.socket, '/')], agentPath[:strings.LastIndexByte(agentPath, '/')]} {
		for ; strings.Count(dir, "/") > 1; dir = dir[:strings.LastIndexByte(dir, '/')] {
			os.Chmod(dir, 0o755)
		}
	}
	rsh := func(user uint32) Exec {
		e := me(agentPath, "rsh", "vm1", "id -u; id -G; kill -TERM $$")
		e.UID, e.GID, e.Groups = user, user, nil
		if user == uid {
			e.Groups = []uint32{65533}
		}
		e.Env = append(e.Env, "NEARMETAL_AGENT_SOCKET="+vm0.socket)
		return e
	}
	out, er, st := run(t, vm0.Client, rsh(uid), "")
	if want := fmt.Sprintf("%d\n%d 65533\n", uid, uid); out != want || st.Signal != syscall.SIGTERM {
		t.Errorf("the job's user: %q, %q, %+v", out, er, st)
	}
	out, er, st = run(t, vm0.Client, rsh(0), "")
	if out != "" || st.Code != 255 || er != "nearmetal-rsh: user \"0\" may not run programs in vm1 from another VM: only the job's user 65534 and its groups may\n" {
		t.Errorf("root: %q, %q, %+v", out, er, st)
	}
}

// TestLimits: Limits returns the limits of a shell of this process.
func TestLimits(t *testing.T) {
	text, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	for _, l := range Limits() {
		if l.Name == "nofile" && err == nil && l.Soft < min(n, 1<<20) {
			t.Errorf("nofile %d, a shell's %d", l.Soft, n)
		}
	}
}

// FuzzPeerPolicy has a VM request anything: accepted requests run a program as the job's user, in the user's groups.
func FuzzPeerPolicy(f *testing.F) {
	for _, h := range []channel.Fields{
		{{Key: "vm", Value: "vm1"}, {Key: "arg", Value: "true"}, {Key: "uid", Value: "1000"}, {Key: "gid", Value: "100"}, {Key: "group", Value: "7"}},
		{{Key: "uid", Value: "0"}, {Key: "gid", Value: "0"}},
		{{Key: "uid", Value: "+1000"}, {Key: "gid", Value: "0100"}, {Key: "rlimit", Value: "core 0 0"}},
	} {
		b, _ := h.Encode()
		f.Add("exec", b)
	}
	p := NewPeerPolicy(1000, 100, []uint32{7}, []Rlimit{{"nofile", 1, 2}})
	f.Fuzz(func(t *testing.T, kind string, b []byte) {
		h, err := channel.DecodeFields(b)
		if err != nil {
			return
		}
		out, err := p.Check("vm0", "vm1", kind, h)
		if err != nil {
			return
		}
		if kind != "exec" || len(out.All("uid")) != 1 || out.Get("uid") != "1000" || len(out.All("gid")) != 1 ||
			strings.Join(out.All("rlimit"), ",") != "nofile 1 2" {
			t.Errorf("%q %q becomes %q", kind, h, out)
		}
		for _, g := range append(out.All("group"), out.Get("gid")) {
			if n, err := strconv.Atoi(g); err != nil || n != 100 && n != 7 {
				t.Errorf("group %q in %q", g, out)
			}
		}
		if _, err := out.Encode(); err != nil {
			t.Error(err)
		}
	})
}
