package plan

// The cost of a placement is a list of terms, compared in order: the first term that differs decides. Each term is a
// sum over the VMs or the nodes of one host and never decreases as VMs are added, so that the search can stop early.
// docs/plan.md defines the terms for users. Among placements of equal cost the search keeps the first one found;
// search.arrange defines the order of the nodes.
const (
	termMismatch     = iota // guest nodes more or fewer than the host nodes under them (only with placement.nodes)
	termOverlapFirst        // policy spread: as termOverlap, but before all other terms
	termNodes               // host nodes under VMs; with policy spread: usable host nodes that are not used
	termPages               // steps down from the largest pages, over VMs
	termDeviceWorst         // per group: the farthest VM's distance to its devices
	termDevice              // distance of each VM's nodes to each of its devices
	termCaches              // cuts (cost of packing)
	termOverlap             // pairs of VMs on one node; with policy consolidate: nodes with at least one VM
	termApartWorst          // per group: the VM whose nodes are farthest apart
	termApart               // distances between the nodes of each VM
	termHoles               // policy spread: unevenness; others: fragmentation of the largest free nodes
	terms
)

// cost holds one placement's terms.
type cost [terms]int64

func (a *cost) less(b *cost) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (a *cost) add(b *cost) {
	for i := range a {
		a[i] += b[i]
	}
}

// unknownDistance is the distance to a device whose node the firmware does not report.
const unknownDistance = 255
