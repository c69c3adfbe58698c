package launch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// captured has the command lines of the launchers themselves.
var captured = map[string][]string{
	"hydra": {"-x", "vm1", `"/usr/bin/hydra_pmi_proxy"`, "--control-port", "login1:38699", "--rmk", "user", "--launcher", "ssh",
		"--launcher-exec", "/run/nm/nearmetal-rsh", "--demux", "poll", "--pgid", "0", "--proxy-id", "1"},
	"orte": {"vm0", " orted", "-mca", "ess", `"env"`, "-mca", "orte_node_regex", `"login,vm[1:0-1]@0(3)"`, "-mca", "orte_hnp_uri",
		`"2044133376.0;tcp://192.0.2.2,198.51.100.7:56485;tcp6://[fd00::2]:47949"`, "--tree-spawn", "-mca", "orte_parent_uri",
		`"2044133376.0;tcp://192.0.2.2,198.51.100.7:56485;tcp6://[fd00::2]:47949"`},
	"prrte": {"vm0", "PRTE_PREFIX=/opt/o;export PRTE_PREFIX;LD_LIBRARY_PATH=/opt/o/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;/opt/o/bin/prted",
		"--prtemca", "prte_hnp_uri", `"prterun-login1-5447@0.0;tcp://192.0.2.2,10.1.1.1:57155:24,16;tcp6://[fd00::2]:47407:64,24"`},
	"intel": {"-q", "-x", "vm1", "/opt/intel/bin/hydra_bstrap_proxy", "--upstream-host", "login1", "--upstream-port", "41225", "--pgid", "0"},
}

func TestCaptured(t *testing.T) {
	uplink := netip.MustParsePrefix("10.0.2.2/24")
	for name, want := range map[string]string{
		"hydra": `"/usr/bin/hydra_pmi_proxy" --control-port 10.0.2.2:38699 --rmk user --launcher ssh --launcher-exec /run/nm/nearmetal-rsh` +
			` --demux poll --pgid 0 --proxy-id 1`,
		"orte": ` orted -mca ess "env" -mca orte_node_regex "login,vm[1:0-1]@0(3)" -mca orte_hnp_uri "2044133376.0;tcp://10.0.2.2:56485"` +
			` --tree-spawn -mca orte_parent_uri "2044133376.0;tcp://10.0.2.2:56485"`,
		"prrte": `PRTE_PREFIX=/opt/o;export PRTE_PREFIX;LD_LIBRARY_PATH=/opt/o/lib:$LD_LIBRARY_PATH;export LD_LIBRARY_PATH;/opt/o/bin/prted` +
			` --prtemca prte_hnp_uri "prterun-login1-5447@0.0;tcp://10.0.2.2:57155:24"`,
		"intel": `/opt/intel/bin/hydra_bstrap_proxy --upstream-host 10.0.2.2 --upstream-port 41225 --pgid 0`,
	} {
		host, words, err := RshArgs(captured[name])
		if err != nil || !strings.HasPrefix(host, "vm") {
			t.Errorf("%s: %q %v", name, host, err)
			continue
		}
		argv := RshCommand(CallBack(words, uplink, "eth0"), "/bin/bash")
		if !slices.Equal(argv, []string{"/bin/sh", "-c", want}) {
			t.Errorf("%s: %q\nwant %q", name, argv, want)
		}
	}
}

func TestCallBackLeavesAlone(t *testing.T) {
	uplink := netip.MustParsePrefix("10.0.2.2/24")
	for _, words := range [][]string{
		{}, {"--control-port"}, {"x", "--control-port", "nonsense"}, {"--control-port", "a:b:1"},
		{"orte_hnp_uri", `"1.0;tcp6://[fd00::2]:47949"`}, {"prte_hnp_uri", "x y;tcp://1.2.3.4:5"}, {"echo", "login1:80", "tcp://1.2.3.4:5"},
	} {
		if got := CallBack(words, uplink, "eth0"); !slices.Equal(got, words) {
			t.Errorf("%q became %q", words, got)
		}
	}
	if got := CallBack([]string{"--iface", "ib0"}, uplink, "eth0"); got[1] != "eth0" {
		t.Errorf("%q", got)
	}
}

func TestRshArgs(t *testing.T) {
	for _, c := range []struct {
		args string
		host string
		cmd  string
	}{
		{"vm0 true", "vm0", "true"},
		{"-x -q -oBatchMode=yes -o StrictHostKeyChecking=no -l me vm0 true", "vm0", "true"},
		{"-xl me me@vm0 -n true -x", "vm0", "true -x"},
		{"10.77.0.1 -- -odd", "10.77.0.1", "-odd"},
		{"-p22 vm-1 a b", "vm-1", "a b"},
	} {
		host, cmd, err := RshArgs(strings.Fields(c.args))
		if err != nil || host != c.host || strings.Join(cmd, " ") != c.cmd {
			t.Errorf("%s: %q %q %v", c.args, host, cmd, err)
		}
	}
	for _, bad := range []string{"", "vm0", "-x", "-l", "-x vm0", "-? vm0 true", "../etc true", "@ true", "a@ true", "vm0; true", "--bad vm0 true", "- true"} {
		if host, cmd, err := RshArgs(strings.Fields(bad)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q %q %v", bad, host, cmd, err)
		}
	}
	if _, _, err := RshArgs([]string{"vm0", strings.Repeat("x", rshBytes)}); err == nil {
		t.Error("too long")
	}
	if _, _, err := RshArgs(make([]string, rshWords+1)); err == nil {
		t.Error("too many")
	}
	if _, _, err := RshArgs([]string{"vm0", "a\x00b"}); err == nil {
		t.Error("zero byte")
	}
}

func TestRshCommand(t *testing.T) {
	for shell, want := range map[string]string{
		"/bin/bash": "/bin/sh", "": "/bin/sh", "/usr/bin/fish": "/bin/sh", "csh": "/bin/sh", "/bin/tcsh": "/bin/tcsh", "/usr/bin/csh": "/usr/bin/csh",
	} {
		if got := RshCommand([]string{"a", "b"}, shell); !slices.Equal(got, []string{want, "-c", "a b"}) {
			t.Errorf("%s: %q", shell, got)
		}
	}
}

func FuzzRsh(f *testing.F) {
	for _, c := range captured {
		f.Add(strings.Join(c, "\n"))
	}
	uplink := netip.MustParsePrefix("10.0.2.2/24")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		host, words, err := RshArgs(args)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of more than a line: %q", err)
			}
			return
		}
		if host == "" || host[0] == '-' || strings.ContainsAny(host, "/ \t@:\"'") || len(words) == 0 {
			t.Errorf("%q: host %q, %d words", text, host, len(words))
		}
		if got := CallBack(words, uplink, "eth0"); len(got) != len(words) {
			t.Errorf("%q: %d words of %d", text, len(got), len(words))
		}
	})
}

// TestCallBackPorts: the ports that launchers are called back at, and none in unknown commands.
func TestCallBackPorts(t *testing.T) {
	for name, want := range map[string]uint16{"hydra": 38699, "orte": 56485, "prrte": 57155, "intel": 41225} {
		if got := CallBackPorts(captured[name]); !slices.Equal(got, []uint16{want}) {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
	}
	for _, words := range [][]string{
		{}, {"--control-port"}, {"--control-port", "a:0"}, {"--control-port", "a:99999"}, {"--upstream-port", "-1"}, {"--upstream-port", "x"}, {"echo", "a:22"},
	} {
		if got := CallBackPorts(words); len(got) > 0 {
			t.Errorf("%q: %v", words, got)
		}
	}
}
