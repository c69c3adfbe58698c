package slurm

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/slurm/conf"
	"nearmetal/internal/topology"
)

// maxSlots bounds the files of a GRES on a node.
const maxSlots = 4096

// Slot is one instance of a GRES on a node.
type Slot struct {
	File string
	Type string // "": none
}

// Slots returns the slots of a GRES on a node in the order in which Slurm numbers them: that of the lines of
// gres.conf and of File= (gres.conf(5)). A line without NodeName applies to every node.
func Slots(gres *conf.Config, node, name string) ([]Slot, error) {
	var slots []Slot
	for _, l := range gres.Lines {
		if n, _ := l.Get("Name"); !strings.EqualFold(n, name) {
			continue
		}
		if v, ok := l.Get("NodeName"); ok {
			names, err := conf.Expand(v)
			if err != nil {
				return nil, fmt.Errorf("%s: NodeName: %w", l.Where(), err)
			}
			if !slices.Contains(names, node) {
				continue
			}
		}
		v, ok := l.Get("File")
		if !ok {
			return nil, fmt.Errorf("%s: Name=%s has no File=, which says which VF a job has", l.Where(), name)
		}
		more, err := conf.Expand(v)
		if err != nil {
			return nil, fmt.Errorf("%s: File: %w", l.Where(), err)
		}
		kind, _ := l.Get("Type")
		for _, file := range more {
			slots = append(slots, Slot{file, kind})
		}
		if len(slots) > maxSlots {
			return nil, fmt.Errorf("%s: more than %d files", l.Where(), maxSlots)
		}
	}
	return slots, nil
}

// Indices returns the slots of a GRES that a job has on one node, from Slurm's description:
// "vf:mlx5:2(IDX:0,3),region(CNT:536870912)" (scontrol show job -d; src/common/gres.c).
func Indices(detail, name string) ([]int, error) {
	var list []int
	for _, part := range conf.SplitOutside(detail, '(', ')') {
		head, index, ok := strings.Cut(part, "(")
		if kind, _, _ := strings.Cut(head, ":"); kind != name {
			continue
		}
		index, _ = strings.CutSuffix(index, ")")
		index, isIndex := strings.CutPrefix(index, "IDX:")
		if !ok || !isIndex {
			return nil, fmt.Errorf("Slurm does not say which %s the job has (%.80q): gres.conf needs File=", name, part)
		}
		if index == "" || index == "N/A" {
			continue
		}
		more, err := topology.ParseList(index, maxSlots)
		if err != nil {
			return nil, fmt.Errorf("%.80q: %w", part, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// groupOf returns the IOMMU group whose file is called so: /dev/vfio/8 is that of group 8.
func groupOf(file string) (int, error) {
	dir, base := path.Split(path.Clean(file))
	n, err := strconv.ParseUint(base, 10, 31)
	if err != nil || !strings.HasSuffix(dir, "/dev/vfio/") {
		return 0, fmt.Errorf("gres.conf: File=%.80q is not that of an IOMMU group, such as /dev/vfio/8", file)
	}
	return int(n), nil
}
