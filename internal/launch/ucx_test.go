package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestPreload(t *testing.T) {
	const dir, file = "/run/nm/libfabric", "libnearmetal-ucx.so"
	const ours, asan, bind = dir + "/" + file, "ASAN_OPTIONS=verify_asan_link_order=0", "APPTAINER_BIND=" + dir
	const other = "SINGULARITY_BIND=" + dir
	for _, test := range []struct{ environ, want []string }{
		{nil, []string{"LD_PRELOAD=" + ours, asan, bind, other}},
		{[]string{"A=1", "LD_PRELOAD="}, []string{"A=1", "LD_PRELOAD=" + ours, asan, bind, other}},
		{[]string{"LD_PRELOAD=/a.so b.so"}, []string{"LD_PRELOAD=/a.so:b.so:" + ours, asan, bind, other}},
		{[]string{"LD_PRELOAD=/a.so:" + ours, asan, bind, other, "B=2"}, []string{"LD_PRELOAD=/a.so:" + ours, asan, bind, other, "B=2"}},
		{[]string{"APPTAINER_BIND=/data:/mnt:ro,/scratch", "ASAN_OPTIONS=detect_leaks=0"}, []string{"APPTAINER_BIND=/data:/mnt:ro,/scratch," + dir,
			"ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0", "LD_PRELOAD=" + ours, other}},
	} {
		before := slices.Clone(test.environ)
		if got := Preload(test.environ, dir, file); !slices.Equal(got, test.want) {
			t.Errorf("Preload(%q) = %q, expected %q", test.environ, got, test.want)
		}
		if !slices.Equal(before, test.environ) {
			t.Errorf("%q was changed", before)
		}
	}
}

func TestUCXNotices(t *testing.T) {
	for environ, want := range map[string]string{
		"":                            "",
		"UCX_TLS=":                    "",
		"UCX_TLS=all":                 "",
		"UCX_TLS=ivshmem,self,sm":     "",
		"UCX_TLS=^tcp":                "",
		"UCX_TLS=^ivshmem":            "UCX_TLS=^ivshmem is respected",
		"UCX_TLS=^all":                "",
		"UCX_TLS=rc,sm,self":          "UCX_TLS=rc,sm,self is respected",
		"OMPI_MCA_pml=ucx":            "",
		"OMPI_MCA_pml=cm,ob1":         "",
		"OMPI_MCA_pml=^ob1":           "",
		"OMPI_MCA_pml=ob1":            "OMPI_MCA_pml=ob1 is respected",
		"UCX_TLS_X=rc OMPI_MCA_pmlx=": "",
	} {
		got := strings.Join(UCXNotices(strings.Fields(environ)), "\n")
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, expected %q", environ, got, want)
		}
	}
}

// TestEnvUCX: Open MPI uses pml ucx only if it is requested.
func TestEnvUCX(t *testing.T) {
	s := Setup{Side: InVM, Agent: "/a", OpenMPIHosts: "/o", MPICHHosts: "/m", Interface: "eth0", Fabric: "/run/nm/libfabric/p.so"}
	for _, test := range []struct {
		ucx, prefer   bool
		has, hasnt, m string
	}{
		{false, false, "OMPI_MCA_mtl_ofi_priority=100", "ucx_tls", "ofi"},
		{true, false, "OMPI_MCA_mtl_ofi_priority=100", "ucx_", "ofi"},
		{true, true, "OMPI_MCA_pml_ucx_priority=200", "=100x", "ucx"},
	} {
		s.UCX, s.PreferUCX = test.ucx, test.prefer
		env, err := Env(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(env, "\n")
		if !strings.Contains(text, test.has) || strings.Contains(text, test.hasnt) || !slices.Contains(env, "MPIR_CVAR_CH4_NETMOD="+test.m) {
			t.Errorf("%+v: %s", test, text)
		}
	}
	// The user's own choice has priority.
	s.UCX, s.PreferUCX = true, false
	for pml, want := range map[string]bool{"ucx": true, "cm,ucx": true, "^ucx": false, "ob1": false} {
		env, err := Env(s, []string{"OMPI_MCA_pml=" + pml})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(env, "OMPI_MCA_opal_common_ucx_devices=any"); got != want {
			t.Errorf("OMPI_MCA_pml=%s: any device: %v, expected %v", pml, got, want)
		}
	}
}
