package lower

import (
	"slices"
	"strings"
	"testing"
)

// Linux gets no memory for bounce buffers, except for devices of the host or where the user asks for it.
func TestBounceBuffers(t *testing.T) {
	for _, c := range []struct {
		args KernelArgs
		want []string
	}{
		{KernelArgs{}, []string{"swiotlb=noforce"}},
		{KernelArgs{Passthrough: true}, nil},
		{KernelArgs{Extra: []string{"swiotlb=4096"}}, []string{"swiotlb=4096"}},
		{KernelArgs{Extra: []string{"noswiotlb"}}, []string{"swiotlb=noforce"}},
	} {
		var got []string
		for _, a := range strings.Fields(c.args.String()) {
			if strings.HasPrefix(a, "swiotlb=") {
				got = append(got, a)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.args, got, c.want)
		}
	}
}
