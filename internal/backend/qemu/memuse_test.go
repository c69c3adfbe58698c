package qemu

import (
	"strings"
	"testing"
)

const smapsFixture = `55d0c0000000-55d0c0100000 r-xp 00000000 fe:00 1 /usr/bin/qemu-system-x86_64
Size:               1024 kB
Rss:                 500 kB
Pss:                 250 kB
VmFlags: rd ex
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
Size:             262144 kB
Rss:              100000 kB
7f0020000000-7f0030000000 rw-p 00000000 00:00 0
Rss:                   7 kB
7f0040000000-7f0050000000 rw-s 00000000 00:01 5 /memfd:memory-backend-memfd (deleted)
Rss:               50000 kB
7f0060000000-7f0060400000 rw-s 00000000 00:19 6 /dev/shm/#123 (deleted)
Rss:                4096 kB
7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  30 kB
`

func TestParseSmaps(t *testing.T) {
	got, err := parseSmaps(strings.NewReader(smapsFixture), []uint64{256 * mib, 256 * mib}, 4*mib)
	want := Memory{GuestBytes: 100007 << 10, RegionBytes: 4096 << 10, RestBytes: 50530 << 10}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"x-y rw-p 0 0 0\n", "2-1 rw-p 0 0 0\n", "Rss: many kB\n"} {
		if _, err := parseSmaps(strings.NewReader(bad), nil, 0); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzSmaps(f *testing.F) {
	f.Add(smapsFixture)
	f.Fuzz(func(t *testing.T, s string) { parseSmaps(strings.NewReader(s), []uint64{256 * mib}, 4*mib) })
}
