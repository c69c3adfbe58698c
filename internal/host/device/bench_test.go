package device

import (
	"os"
	"testing"
	"time"
)

// BenchmarkHandOver makes 7 VFs, all that the captured card has, binds each to a user and releases it, on an emulated
// kernel that answers at once. It therefore measures nearmetal's own time. The goal is under 2 s for 8.
func BenchmarkHandOver(b *testing.B) {
	const n = 7
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		b.StopTimer()
		root := capture(b, "s0")
		emulate(b, root)
		h := open(b, root)
		b.StartTimer()
		began := time.Now()
		if err := h.EnableVFs(ctx, thePF, n); err != nil {
			b.Fatal(err)
		}
		made := time.Since(began)
		for k := 0; k < n; k++ {
			if err := h.Bind(ctx, vfAddress(k), os.Getuid(), os.Getgid()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(made.Seconds(), "s/enable")
		b.ReportMetric((time.Since(began)-made).Seconds()/n*8, "s/8-bound")
		b.StopTimer()
		if _, err := h.DisableVFs(ctx, thePF); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
