package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/load"
)

// maxLoadBytes bounds what an owner says of what its VMs take.
const maxLoadBytes = 16 << 20

// Usage reads what the VMs of a cluster on this host take of it; with nodes also where their memory lies.
func (r *Record) Usage(nodes bool) []load.VM {
	list := []load.VM{}
	for _, v := range r.VMs {
		u := load.VM{Cluster: r.Name, Name: v.Name, State: string(v.State), VCPUs: v.VCPUs}
		if r.Paused && v.State == Ready {
			u.State = "paused"
		}
		if v.PID != 0 && u.Read("/", v.PID) {
			if nodes {
				u.ReadNodes("/", v.PID)
			}
			// The region is one for all.
			if k := slices.IndexFunc(list, func(x load.VM) bool { return x.Region != nil }); k >= 0 {
				u.Region = list[k].Region
			} else {
				u.ReadRegion("/", v.PID)
			}
		}
		list = append(list, u)
	}
	return list
}

// usage is Usage, of VMs on other hosts too: each host reads its own.
func (c *Cluster) usage(nodes bool) ([]load.VM, error) {
	r := c.Record()
	if c.far == nil {
		return r.Usage(nodes), nil
	}
	list := r.Usage(false) // names and states: it has no process here
	parts := make([][]load.VM, len(c.far.hosts))
	err := c.onHosts(func(i int, h *farHost) (err error) {
		parts[i], err = (&Client{h.client, r}).Usage(context.Background(), nodes)
		return err
	})
	for i, h := range c.far.hosts {
		for _, v := range parts[i] {
			k := slices.IndexFunc(list, func(x load.VM) bool { return x.Name == v.Name })
			if k >= 0 && slices.Contains(h.vms, v.Name) {
				v.Cluster, v.State, v.VCPUs = list[k].Cluster, list[k].State, list[k].VCPUs
				list[k] = v
			}
		}
	}
	return list, err
}

// serveLoad answers a client that asks what the VMs take.
func (c *Cluster) serveLoad(s *channel.Stream) {
	list, err := c.usage(s.Header().Get("nodes") == "1")
	if err != nil {
		s.Reset(channel.Clean(err.Error()))
		return
	}
	if err := json.NewEncoder(s).Encode(list); err != nil {
		s.Close()
		return
	}
	s.CloseWrite(channel.LaneData)
	<-s.Gone()
}

// Usage asks the cluster's owner what its VMs take of their hosts.
func (c *Client) Usage(ctx context.Context, nodes bool) ([]load.VM, error) {
	var h channel.Fields
	if nodes {
		h.Add("nodes", "1")
	}
	s, err := c.Mux().Open("load", h)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(s, maxLoadBytes))
	if err != nil {
		return nil, err
	}
	var list []load.VM
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("invalid answer of the cluster's owner: %w", err)
	}
	return list, nil
}
