package rank

import (
	"slices"
	"testing"
)

// Checks that the user's own pml is kept, and that shared memory between VMs is excluded in any case.
func TestSeparateVMs(t *testing.T) {
	for _, test := range []struct{ env, pml, osc string }{
		{"HOME=/", "OMPI_MCA_pml=cm,ob1", "^sm,ucx"},
		{"OMPI_MCA_pml=", "OMPI_MCA_pml=cm,ob1", "^sm,ucx"},
		{"OMPI_MCA_pml=ob1", "", "^sm,ucx"},
		{"OMPI_MCA_pml=^ucx", "", "^sm,ucx"},
		{"OMPI_MCA_pml=ucx", "", "^sm"},
		{"OMPI_MCA_pml_ucx_priority=200", "OMPI_MCA_pml=ucx,cm,ob1", "^sm"},
	} {
		want := []string{"OMPI_MCA_btl=tcp,self", "OMPI_MCA_osc=" + test.osc, "OMPI_MCA_coll=^sm,han,xhc,smcuda"}
		if test.pml != "" {
			want = append(want, test.pml)
		}
		if got := separateVMs([]string{"PATH=/bin", test.env}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", test.env, got, want)
		}
	}
}
