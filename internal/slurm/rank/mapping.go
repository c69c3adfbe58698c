package rank

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// PMI_process_mapping states for MPICH which ranks share a node: "(vector,(first,nodes,ranks),…)", blocks of ranks
// assigned to consecutive nodes, repeated until all ranks have a node (MPICH, src/pmi/src/pmi_util.c and Slurm's
// mpi/pmi2). With several VMs on a node, MPICH would treat them as one node and use shared memory between them, which
// they do not have. Therefore the mapping is rewritten to have VMs as nodes.

var mappingForm = lazyregexp.New(`\(vector((?:,\(\d+,\d+,\d+\))+)\)`)

// errMapping reports a mapping that is not understood.
var errMapping = errors.New("Slurm's PMI_process_mapping is not a vector")

type block struct{ first, nodes, ranks int }

// parseMapping parses the blocks of a mapping.
func parseMapping(text string) ([]block, error) {
	m := mappingForm().FindStringSubmatch(text)
	if m == nil {
		return nil, errMapping
	}
	var blocks []block
	for _, part := range strings.Split(strings.Trim(m[1], ",()"), "),(") {
		var n [3]int
		for i, s := range strings.Split(part, ",") {
			v, err := strconv.ParseUint(s, 10, 31)
			if err != nil || i > 2 || v > maxTasks {
				return nil, errMapping
			}
			n[i] = int(v)
		}
		blocks = append(blocks, block{n[0], n[1], n[2]})
	}
	return blocks, nil
}

// nodesOf returns the node of each of size ranks.
func nodesOf(blocks []block, size int) ([]int, error) {
	nodes := make([]int, 0, size)
	for len(nodes) < size {
		before := len(nodes)
		for _, b := range blocks {
			for n := 0; n < b.nodes && len(nodes) < size; n++ {
				for r := 0; r < b.ranks && len(nodes) < size; r++ {
					nodes = append(nodes, b.first+n)
				}
			}
		}
		if len(nodes) == before {
			return nil, errMapping
		}
	}
	return nodes, nil
}

// rewriteMapping replaces the mapping in a line by one whose nodes are VMs, vms on each node, with ranks assigned as
// by task.vm. size is the number of ranks.
func rewriteMapping(line string, size, vms int) (string, error) {
	at := mappingForm().FindStringIndex(line)
	if at == nil {
		return line, nil
	}
	blocks, err := parseMapping(line)
	if err != nil {
		return "", err
	}
	nodes, err := nodesOf(blocks, size)
	if err != nil {
		return "", err
	}
	total := map[int]int{}
	for _, n := range nodes {
		total[n]++
	}
	local := map[int]int{}
	where := make([]int, size)
	for r, n := range nodes {
		where[r] = n*vms + vmOf(local[n], total[n], vms)
		local[n]++
	}
	return line[:at[0]] + mappingText(where) + line[at[1]:], nil
}

// mappingText returns the mapping that assigns rank r to where[r]: runs of equal length on consecutive VMs form one
// block.
func mappingText(where []int) string {
	var blocks []block
	for i := 0; i < len(where); {
		n := 1
		for i+n < len(where) && where[i+n] == where[i] {
			n++
		}
		if k := len(blocks) - 1; k >= 0 && blocks[k].ranks == n && blocks[k].first+blocks[k].nodes == where[i] {
			blocks[k].nodes++
		} else {
			blocks = append(blocks, block{where[i], 1, n})
		}
		i += n
	}
	var b strings.Builder
	b.WriteString("(vector")
	for _, k := range blocks {
		fmt.Fprintf(&b, ",(%d,%d,%d)", k.first, k.nodes, k.ranks)
	}
	b.WriteString(")")
	return b.String()
}
