package launch

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func setup(side Side) Setup {
	return Setup{
		Side: side, Cluster: "demo", Agent: "/run/nm/demo/nearmetal-rsh",
		OpenMPIHosts: "/run/nm/demo/hosts.openmpi", MPICHHosts: "/run/nm/demo/hosts.mpich",
		Subnet: netip.MustParsePrefix("10.77.0.0/16"), Interface: "eth0",
	}
}

// TestEnvGolden compares Env with testdata. UPDATE=1 go test rewrites the files.
func TestEnvGolden(t *testing.T) {
	for name, s := range map[string]Setup{"host": setup(OnHost), "vm": setup(InVM), "root": setup(OnHost), "fabric": setup(OnHost)} {
		s.Root = name == "root"
		if name == "fabric" {
			s.Fabric = providerFile
		}
		vars, err := Env(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(vars, "\n") + "\n"
		file := filepath.Join("testdata", "env."+name+".golden")
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestEnvUsersValues(t *testing.T) {
	user := []string{"UCX_NET_DEVICES=mlx5_0:1", "PRTE_MCA_rmaps_default_mapping_policy=node", "HYDRA_LAUNCHER=slurm"}
	vars, err := Env(setup(OnHost), user)
	if err != nil {
		t.Fatal(err)
	}
	has := func(vars []string, name string) bool {
		return slices.ContainsFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	}
	if has(vars, "UCX_NET_DEVICES") || has(vars, "PRTE_MCA_rmaps_default_mapping_policy") {
		t.Error("a choice of the user's was overridden")
	}
	if !slices.Contains(vars, "HYDRA_LAUNCHER=ssh") {
		t.Error("the ranks would go elsewhere: HYDRA_LAUNCHER")
	}

	// A value that the user appends after nearmetal's, as in a batch script, is the user's.
	changed := append(slices.Clone(vars), "FI_TCP_IFACE=eth7")
	if again, err := Env(setup(OnHost), changed); err != nil || has(again, "FI_TCP_IFACE") || !has(again, "FI_UDP_IFACE") {
		t.Errorf("%q, %v", again, err)
	}

	// In the environment of another cluster, the variables set by that cluster are not the user's choice.
	other := setup(OnHost)
	other.Subnet = netip.MustParsePrefix("10.78.0.0/16")
	again, err := Env(other, append(user, vars...))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(again, "OMPI_MCA_btl_tcp_if_include=10.78.0.0/16") || has(again, "UCX_NET_DEVICES") {
		t.Errorf("%q", again)
	}
}

func TestEnvRefuses(t *testing.T) {
	for _, bad := range []string{"", "relative", "/a b", "/a:b", "/a$b", "/a'b", "/a\nb"} {
		s := setup(OnHost)
		s.Agent = bad
		if _, err := Env(s, nil); err == nil {
			t.Errorf("agent %q", bad)
		}
	}
	s := setup(OnHost)
	s.Interface = "eth0;x"
	if _, err := Env(s, nil); err == nil {
		t.Error("interface")
	}
}

func TestLink(t *testing.T) {
	dir := t.TempDir()
	for _, exe := range []string{"/a/nearmetal", "/a/nearmetal", "/b/with space/nearmetal"} {
		path, err := Link(dir, exe)
		if err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(path); err != nil || to != exe || filepath.Base(path) != AgentName {
			t.Errorf("%s -> %s, %v", path, to, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files", len(left))
	}
	if _, err := Link("/no such", "/x"); err == nil {
		t.Error("a path with a blank")
	}
}

func TestAgentEnv(t *testing.T) {
	got := AgentEnv([]string{"PATH=/bin", "PMIX_MCA_x=1", "OMPI_TOOL_NAME=mpirun", "OMPI_MCA_btl=self", "HYDI_CONTROL_FD=5", "UCX_TLS=tcp"})
	if want := []string{"PATH=/bin", "OMPI_MCA_btl=self", "UCX_TLS=tcp"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
