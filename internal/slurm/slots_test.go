package slurm

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/slurm/conf"
)

func TestIndices(t *testing.T) {
	for text, want := range map[string]string{
		"vf:igb:1(IDX:0)":                               "[0]",
		"vf:igb:2(IDX:0-1),region(CNT:536870912)":       "[0 1]",
		"vf:igb:2(IDX:0,3),vf:mlx5:1(IDX:4),gpu(IDX:1)": "[0 3 4]",
		"region:0(CNT:0)":                               "[]",
		"vf:igb:0(IDX:)":                                "[]",
		"":                                              "[]",
		"vf:igb:1(CNT:1)":                               "error",
		"vf:igb:1":                                      "error",
		"vf:igb:1(IDX:-1)":                              "error",
		"vf:igb:1(IDX:0-99999999)":                      "error",
	} {
		list, err := Indices(text, "vf")
		got := fmt.Sprint(list)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
}

// Checks that the number of a VF is its index among the files of all lines, in their order.
func TestSlots(t *testing.T) {
	c, err := conf.Parse(strings.NewReader(`NodeName=n[1-2] Name=vf Type=mlx5 File=/dev/vfio/[20-21] Cores=0-3
Name=region Count=1G
NodeName=n1 Name=vf Type=igb File=/dev/vfio/9
NodeName=n3 Name=vf Type=igb Count=2
`), "gres.conf")
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{
		"n1": "[{/dev/vfio/20 mlx5} {/dev/vfio/21 mlx5} {/dev/vfio/9 igb}]", "n2": "[{/dev/vfio/20 mlx5} {/dev/vfio/21 mlx5}]", "n4": "[]", "n3": "error",
	} {
		files, err := Slots(c, node, "vf")
		got := fmt.Sprint(files)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", node, got, err, want)
		}
	}
	for file, want := range map[string]int{"/dev/vfio/8": 8, "/tree/dev/vfio/12": 12, "/dev/null": -1, "/dev/vfio/../8": -1, "/dev/vfio/vfio": -1} {
		if got, err := groupOf(file); got != want && (err == nil || want >= 0) {
			t.Errorf("%s: %d, %v", file, got, err)
		}
	}
}

func FuzzIndices(f *testing.F) {
	f.Add("vf:igb:2(IDX:0,3),region(CNT:536870912)")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Indices(text, "vf")
		for _, i := range list {
			if err == nil && (i < 0 || i > maxSlots) {
				t.Errorf("%q: %d", text, i)
			}
		}
	})
}
