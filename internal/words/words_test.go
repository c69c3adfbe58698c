package words

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 dies", 1: "1 die", 2: "2 dies"} {
		if got := Count(n, "die", "dies"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for b, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1 KiB", 3 << 19: "1.5 MiB", 5 << 18: "1280 KiB", 3000 << 20: "3000 MiB", 1<<10 + 1: "1025 B", 1<<20 - 1: "1024 KiB",
		64 << 30: "64 GiB", 64<<30 + 1: "64 GiB", 2 << 40: "2048 GiB", 1<<64 - 1: "17179869184 GiB",
	} {
		if got := Bytes(b); got != want {
			t.Errorf("%d: %q, want %q", b, got, want)
		}
	}
}
