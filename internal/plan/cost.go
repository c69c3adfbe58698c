package plan

// The cost of a placement is a list of terms, compared in order: the first
// term that differs decides. Each is a sum over the VMs of one host, or over
// its nodes, and never falls as VMs are added, so that the search can stop
// early. docs/plan.md states them for users. Among placements of equal cost the
// first found is taken, and nodes are tried in an order (search.arrange).
const (
	termMismatch     = iota // guest nodes more or fewer than the host nodes under them (only with placement.nodes)
	termOverlapFirst        // policy spread: as termOverlap, but before all else
	termNodes               // host nodes under VMs; with policy spread: those that could have been used and are not
	termPages               // steps down from the largest pages, over VMs
	termDeviceWorst         // per group: the farthest VM's distance to its devices
	termDevice              // distance of each VM's nodes to each of its devices
	termCaches              // cuts (cost of packing)
	termOverlap             // pairs of VMs on one node; with policy consolidate: nodes that any VM is on
	termApartWorst          // per group: the VM whose nodes are farthest apart
	termApart               // distances between the nodes of each VM
	termHoles               // policy spread: unevenness; others: how much the largest free nodes are broken into
	terms
)

// cost is one placement's terms.
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

// unknownDistance is taken for a device of which the firmware says no node.
const unknownDistance = 255
