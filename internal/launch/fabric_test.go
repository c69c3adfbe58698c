package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const providerFile = "/run/nm/libfabric/libivshmem-fi.so"

func fabricEnv(t *testing.T, environ ...string) []string {
	t.Helper()
	s := setup(OnHost)
	s.Fabric = providerFile
	s.Providers = []string{"/opt/mpi/lib/libfabric"}
	vars, err := Env(s, environ)
	if err != nil {
		t.Fatal(err)
	}
	return vars
}

func TestFabricUsersValues(t *testing.T) {
	const ours, first = "+" + providerFile + ":/run/nm/libfabric", "FI_PROVIDER_PATH="
	library := first + "/opt/mpi/lib/libfabric:" + ours + ":" + strings.Join(distributionProviders, ":")
	vars := fabricEnv(t)
	for _, want := range []string{"FI_PROVIDER=ivshmem", "OMPI_MCA_mtl=^psm", "MPIR_CVAR_CH4_NETMOD=ofi", "FI_IVSHMEM_CORE=none",
		"I_MPI_OFI_PROVIDER=ivshmem", library} {
		if !slices.Contains(vars, want) {
			t.Errorf("no %s in %q", want, vars)
		}
	}

	// The user's directories stay, before nearmetal's, and the user's choices stay.
	user := []string{"FI_PROVIDER_PATH=/site/libfabric", "FI_PROVIDER=tcp", "OMPI_MCA_mtl=^ofi"}
	vars = fabricEnv(t, user...)
	if !slices.Contains(vars, first+"/site/libfabric:"+ours) {
		t.Errorf("%q", vars)
	}
	for _, v := range vars {
		if strings.HasPrefix(v, "FI_PROVIDER=") || strings.HasPrefix(v, "OMPI_MCA_mtl=") {
			t.Errorf("a choice of the user's was overridden: %s", v)
		}
	}

	// An earlier call knew another MPI library: this library's directory is added.
	s := setup(OnHost)
	s.Fabric = providerFile
	earlier, _ := Env(s, nil)
	if again := fabricEnv(t, earlier...); !slices.Contains(again, library) {
		t.Errorf("no %s in %q", library, again)
	}

	// In the environment that an earlier call made, no entry is repeated.
	if again := fabricEnv(t, append(user, vars...)...); !slices.Contains(again, first+"/site/libfabric:"+ours) {
		t.Errorf("%q", again)
	}
}

// TestFabricOvercommit: ranks learn that VMs wait for each other's CPUs, and the user's own value stays.
func TestFabricOvercommit(t *testing.T) {
	for _, c := range []struct {
		overcommitted bool
		user          []string
		want          bool
	}{{false, nil, false}, {true, nil, true}, {true, []string{"FI_IVSHMEM_OVERCOMMIT=0"}, false}} {
		s := setup(OnHost)
		s.Fabric, s.Overcommitted = providerFile, c.overcommitted
		vars, err := Env(s, c.user)
		if err != nil || slices.Contains(vars, "FI_IVSHMEM_OVERCOMMIT=1") != c.want {
			t.Errorf("%+v: %q, %v", c, vars, err)
		}
	}
}

// TestFabricOtherHosts: with VMs on other hosts the provider gets a core provider.
func TestFabricOtherHosts(t *testing.T) {
	s := setup(OnHost)
	s.Fabric, s.OtherHosts = providerFile, true
	vars, err := Env(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"FI_PROVIDER=ivshmem,verbs,tcp,ofi_rxm", "FI_IVSHMEM_CORE=auto", "OMPI_MCA_opal_common_ofi_provider_include=ivshmem"} {
		if !slices.Contains(vars, w) {
			t.Errorf("no %s in %q", w, vars)
		}
	}
	if i := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, "OMPI_MCA_pml=") }); i >= 0 {
		t.Errorf("%s: Open MPI would leave the region", vars[i])
	}
}

func TestProviderFolders(t *testing.T) {
	prefix := t.TempDir()
	for _, d := range []string{"bin", "lib/libfabric", "lib/openmpi/libfabric", "lib/other/lib"} {
		if err := os.MkdirAll(filepath.Join(prefix, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(prefix, "lib/libtcp-fi.so"), nil, 0o644); err != nil { // as in Intel MPI's wheel
		t.Fatal(err)
	}
	got := ProviderFolders(script(t, filepath.Join(prefix, "bin"), "mpirun", ""))
	want := []string{filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib/libfabric"), filepath.Join(prefix, "lib/openmpi/libfabric")}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := ProviderFolders("/usr/bin/no-such-mpirun"); got != nil {
		t.Errorf("%q", got)
	}
}

func TestFabricEnv(t *testing.T) {
	env := FabricEnv(providerFile)
	for _, want := range []string{"FI_PROVIDER=ivshmem", "FI_IVSHMEM_CORE=none", "OMPI_MCA_mtl=^psm"} {
		if !slices.Contains(env, want) {
			t.Errorf("%q is not among %q", want, env)
		}
	}
	if i := slices.IndexFunc(env, func(v string) bool {
		return strings.HasPrefix(v, "FI_PROVIDER_PATH=+"+providerFile+":"+filepath.Dir(providerFile)+":")
	}); i < 0 {
		t.Errorf("the provider's file and its folder are not the first of FI_PROVIDER_PATH in %q", env)
	}
}
