package launch

import (
	"slices"
	"testing"
)

func TestPreload(t *testing.T) {
	const file = "/run/nm/libfabric/libnearmetal-ucx.so"
	for _, test := range []struct{ environ, want []string }{
		{nil, []string{"LD_PRELOAD=" + file}},
		{[]string{"A=1", "LD_PRELOAD="}, []string{"A=1", "LD_PRELOAD=" + file}},
		{[]string{"LD_PRELOAD=/a.so b.so"}, []string{"LD_PRELOAD=/a.so:b.so:" + file}},
		{[]string{"LD_PRELOAD=/a.so:" + file, "B=2"}, []string{"LD_PRELOAD=/a.so:" + file, "B=2"}},
	} {
		before := slices.Clone(test.environ)
		if got := Preload(test.environ, file); !slices.Equal(got, test.want) {
			t.Errorf("Preload(%q) = %q, expected %q", test.environ, got, test.want)
		}
		if !slices.Equal(before, test.environ) {
			t.Errorf("%q was changed", before)
		}
	}
}
