package region

import (
	"fmt"
	"strings"
	"testing"
)

// The C and the Go definition of the layout are equal, and choose the same number of slots.
func TestCLayout(t *testing.T) {
	rows := []struct {
		c    string
		want uint64
	}{
		{"NM_LAYOUT_TYPE", LayoutFabric}, {"NM_LAYOUT_VERSION", LayoutVersion},
		{"NM_LAYOUT_MAX_SLOTS", LayoutMaxSlots}, {"NM_LAYOUT_MIN_SLOTS", LayoutMinSlots},
		{"NM_LAYOUT_LINE", LayoutLineBytes}, {"NM_LAYOUT_BOUNCE_BYTES", LayoutBounceBytes},
		{"NM_LAYOUT_POOL_MOST", LayoutPoolMost}, {"NM_LAYOUT_MR_COUNT", LayoutMRCount},
		{"NM_LAYOUT_RING_MIN", layoutRingMin}, {"NM_LAYOUT_RING_CTL", layoutRingControl},
		{"NM_LAYOUT_PAGE", layoutPage}, {"sizeof(struct nm_slot)", layoutSlotBytes},
		{"sizeof(struct nm_conn)", layoutConnBytes}, {"sizeof(struct nm_mr)", LayoutLineBytes},
	}
	var src, want strings.Builder
	src.WriteString("#include <stdio.h>\n#include <nearmetal/layout.h>\nint main(void)\n{\n\tstruct nm_layout_geometry g;\n\tuint64_t w;\n")
	for _, r := range rows {
		fmt.Fprintf(&src, "\tprintf(\"%%s %%llu\\n\", %q, (unsigned long long)(%s));\n", r.c, r.c)
		fmt.Fprintf(&want, "%s %d\n", r.c, r.want)
	}
	for shift := uint(12); shift < 40; shift++ {
		for _, n := range []uint64{1 << shift, 3 << (shift - 1)} {
			fmt.Fprintf(&src, "\tw = nm_layout_choose(%dULL, 0);\n", n)
			fmt.Fprintf(&src, "\tprintf(\"%d %%u\\n\", w && !nm_layout_geometry(w, %dULL, &g) ? g.slots : 0);\n", n, n)
			fmt.Fprintf(&want, "%d %d\n", n, LayoutSlots(n))
		}
	}
	src.WriteString("\treturn 0;\n}\n")
	if got := cProgram(t, src.String()); got != want.String() {
		t.Errorf("C has\n%swant\n%s", got, want.String())
	}
}
