package node

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/network"
	"nearmetal/internal/spec"
)

// Variables of the plugin (slurm/boot.c, slurm/step.c).
const (
	VarHosts    = "NEARMETAL_SLURM_HOSTS"     // may be too long for a command line
	VarSecretFD = "NEARMETAL_SLURM_SECRET_FD" // descriptor of a pipe that contains the job's secret
)

// DefaultPorts are those of fleet.DefaultPorts, in the format of plugstack.conf.
const DefaultPorts = "61000-65535"

// Overlay describes what joins a job's VMs over its nodes.
type Overlay struct {
	Secret string // 64 hexadecimal digits, the job's own
	Hosts  string // NAME=ADDR of each node, separated by blanks, in the job's order; "": a single node
	Ports  string // LOW-HIGH; "": DefaultPorts
	Use    string // of the secret: clusters of one job with the same use are joined
}

var (
	hostForm = lazyregexp.New(`^[A-Za-z0-9_.-]{1,127}$`)
	addrForm = lazyregexp.New(`^[A-Za-z0-9_.:-]{1,255}$`)
)

// overlay returns the overlay with the job's other hosts, for the cluster on node; nil if the cluster is not joined
// to others.
func (t Overlay) overlay(c *spec.Cluster, node string) (*wiring.Overlay, error) {
	hosts := strings.Fields(t.Hosts)
	if len(hosts) < 2 || c.Network.Type == "none" || c.Network.Type == "bridge" {
		return nil, nil
	}
	secret, err := hex.DecodeString(t.Secret)
	if err != nil || len(secret) != 32 {
		return nil, errors.New("the job has no secret that joins its nodes: submit it with this version's srun or sbatch")
	}
	out := &wiring.Overlay{Secret: network.Derive(secret, t.Use), Self: -1}
	if t.Ports == "" {
		out.Ports = fleet.DefaultPorts
	} else if n, err := fmt.Sscanf(t.Ports, "%d-%d", &out.Ports[0], &out.Ports[1]); n != 2 || err != nil {
		return nil, fmt.Errorf("plugstack.conf: ports=%.40q is not LOW-HIGH", t.Ports)
	}
	names := spec.VMNames(c)
	for i, h := range hosts {
		name, addr, _ := strings.Cut(h, "=")
		if !hostForm().MatchString(name) || !addrForm().MatchString(addr) {
			return nil, fmt.Errorf("%.80q is not a node and its address", h)
		}
		host := wiring.OverlayHost{Name: name, Addr: addr}
		for _, vm := range names {
			host.VMs = append(host.VMs, spec.HostPrefix(name)+vm)
		}
		out.Hosts = append(out.Hosts, host)
		if name == node {
			out.Self = i
		}
	}
	if out.Self < 0 {
		return nil, fmt.Errorf("node %s is not among the job's own", node)
	}
	return out, nil
}
