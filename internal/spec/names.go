package spec

import (
	"errors"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// MaxVMs is the largest number of VMs in a cluster.
const MaxVMs = 1024

// CheckName returns the fault of a cluster's name, or nil.
func CheckName(name string) error {
	if message := clusterName(name); message != "" {
		return errors.New(message)
	}
	return nil
}

// VMName returns the name of the group's VM n: the one in the file, or the group's name with the number. A group of
// one also has the number, so that a name does not change when a VM is added.
func (g *Group) VMName(n int) string {
	if n < len(g.Names) {
		return g.Names[n]
	}
	name := g.Name
	if name == "" {
		name = "vm"
	}
	return name + strconv.Itoa(n)
}

// Prefix puts a prefix before the names of the group's VMs.
func (g *Group) Prefix(prefix string) {
	g.Name = prefix + g.Name
	names := make([]string, len(g.Names))
	for i := range names {
		names[i] = prefix + g.Names[i]
	}
	g.Names = names
}

// countNames sets the count of the groups that name their VMs instead.
func countNames(c *Cluster) {
	for i := range c.VMs {
		if g := &c.VMs[i]; g.Count == 0 {
			g.Count = len(g.Names)
		}
	}
}

// VMNames returns the names of a cluster's VMs in their order, group by group. Defaults need not be filled in.
func VMNames(c *Cluster) []string {
	names := make([]string, 0, max(0, min(VMCount(c), MaxVMs)))
	for _, g := range groupsOf(c) {
		for i := 0; i < g.Count && len(names) < MaxVMs; i++ {
			names = append(names, g.VMName(i))
		}
	}
	return names
}

var notHostName = lazyregexp.New(`[^a-z0-9-]+`)

// HostPrefix returns the prefix of the names of a host's VMs in a job over several hosts, so that each VM of the job
// has a unique name.
func HostPrefix(host string) string {
	p := strings.Trim(notHostName().ReplaceAllString(strings.ToLower(host), "-"), "-")
	if len(p) > 30 {
		p = p[:30]
	}
	if p == "" || p[0] < 'a' || p[0] > 'z' {
		p = "n" + p
	}
	return p + "-"
}

// VMCount returns the number of VMs of a cluster. Defaults need not be filled in.
func VMCount(c *Cluster) int {
	n := 0
	for _, g := range groupsOf(c) {
		n += g.Count
	}
	return n
}

// groupsOf returns the groups with their names and counts filled in.
func groupsOf(c *Cluster) []Group {
	groups := append([]Group(nil), c.VMs...)
	if len(groups) == 0 {
		groups = make([]Group, 1)
	}
	for i := range groups {
		if groups[i].Name == "" {
			groups[i].Name = "vm"
		}
		if groups[i].Count == 0 {
			groups[i].Count = max(1, len(groups[i].Names))
		}
	}
	return groups
}
