package check

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzCmdline(f *testing.F) {
	f.Add(`ro quiet intel_iommu=on,sp_off isolcpus=1-3 "dyndbg=file a +p" -- init`)
	f.Add("a-b=c=d \x00\"")
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		for name, values := range parseCmdline(s) {
			if name == "" || strings.Contains(name, "-") {
				t.Errorf("name %q of %q", name, s)
			}
			n += len(values)
		}
		if n > len(s)+1 {
			t.Errorf("%d words of %q", n, s)
		}
	})
}

func FuzzPCI(f *testing.F) {
	f.Add("0x00000000fe000000 0x00000000fe01ffff 0x0000000000040200\n0x0000000000000000 0x0000000000003fff 0x0000000000140204\n", strings.Repeat("\x40", 256))
	config := make([]byte, 256)
	config[0x34], config[0x40], config[0x49] = 0x40, 0x10, 0x28
	f.Add("", string(config))
	f.Fuzz(func(t *testing.T, resource, config string) {
		unassigned(resource)
		if p, ok := parsePCIe(config); ok && (p.request < 128 || p.payload < 128 || p.request > 16384 || p.payload > 16384) {
			t.Errorf("%+v", p)
		}
		dmarFlags(config)
	})
}

func FuzzMask(f *testing.F) {
	f.Add("ffff,ffffffff")
	f.Add("0")
	f.Fuzz(func(t *testing.T, s string) {
		set, err := parseMask(s)
		if err != nil || len(set) == 0 {
			return
		}
		again, err := parseMask(formatMask(set))
		if err != nil || len(again) != len(set) {
			t.Errorf("%q became %q: %v", s, formatMask(set), err)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add("Max locked memory         65536                unlimited            bytes\n")
	f.Add("* SRIOV_EN True(1)\nprio-pfc 0:off 3:on\nQEMU emulator version 7.2.22 (Debian)\n")
	f.Add("tmpfs /dev/shm tmpfs rw,size=67108864k 0 0\ncpu  1 2 3 4 5 6 7 8 9 10\nProctrackType=proctrack/cgroup\\\n,x # y\n")
	f.Add("100 Gb/sec (4X EDR)")
	f.Add("8.0 GT/s PCIe\nMemTotal: 5 kB\nDirectMap4k: 1 kB")
	f.Fuzz(func(t *testing.T, s string) {
		parseLimit(s, "Max locked memory")
		judgeSettings("x", parseMstconfig(s))
		parsePFC(s)
		parseQEMUVersion(s)
		parseShm(s)
		parseSlurm(s)
		parseMeminfo(s)
		if gb, lanes, ok := parseRate(s); ok && (gb < 0 || lanes < 0) {
			t.Errorf("%q: %d, %d", s, gb, lanes)
		}
		if v, ok := parseSpeed(s); ok && v < 0 {
			t.Errorf("%q: %d", s, v)
		}
		if steal, total, ok := parseSteal(s); ok && steal > total {
			t.Errorf("%q: %d of %d", s, steal, total)
		}
		if p := printable(s); !utf8.ValidString(p) || strings.ContainsAny(p, "\x1b\n\x00") {
			t.Errorf("%q", p)
		}
	})
}

// FuzzReport: a report from another source is harmless on a terminal, regardless of its contents.
func FuzzReport(f *testing.F) {
	f.Add(`{"version":1,"host":"a\u001b[2J","rows":[{"id":"x.y","group":"g\n","status":"bad","found":"\u001b]0;x\u0007","items":[{"name":"\u0000"}]}]}`)
	f.Add(`{"version":9}`)
	f.Fuzz(func(t *testing.T, s string) {
		var r Report
		if json.Unmarshal([]byte(s), &r) != nil || r.Sane() != nil {
			return
		}
		for _, c := range (Text{Columns: 80, All: true}).Report(&r) {
			if c < ' ' && c != '\n' || c == 0x7f || c >= 0x80 && c < 0xa0 {
				t.Fatalf("a control character %q in the text of %q", c, s)
			}
		}
	})
}
