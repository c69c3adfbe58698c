package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host"
	"nearmetal/internal/verify"
)

// Verify reads the running VMs back and compares them with the plan; with guests it asks
// the guests for their own view too. The cluster is ready.
func (c *Cluster) Verify(ctx context.Context, guests bool) *verify.Report {
	var vms []verify.VM
	for _, v := range c.vms {
		look := verify.VM{Plan: v.plan}
		v.mu.Lock()
		i, agent := v.inst, v.agent
		v.mu.Unlock()
		select {
		case <-i.Done():
			look.Ended = true
		default:
			look.Host, _ = i.(backend.Inspector)
			if p, ok := i.(backend.Promiser); ok {
				look.Region, look.RegionLook = p.Promised()
			}
			if guests && agent != nil { // nil: it is being restarted
				look.Run = runIn(agent)
			}
		}
		vms = append(vms, look)
	}
	return verify.Check(ctx, c.Name(), c.Record().Plan.Region, vms)
}

// runIn runs programs in a VM as the cluster's user.
func runIn(a *guest.Agent) verify.Run {
	return func(ctx context.Context, args []string, w io.Writer) error {
		p, err := a.Start(guest.Exec{
			Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), NoStdin: true})
		if err != nil {
			return err
		}
		defer p.Close()
		stop := context.AfterFunc(ctx, func() { p.Close() })
		defer stop()
		go io.Copy(io.Discard, p.Stderr)
		if _, err := io.Copy(w, p.Stdout); err != nil {
			return err
		}
		st, err := p.Wait()
		if err == nil && st.ExitCode() != 0 {
			err = fmt.Errorf("%s: %s", args[0], channel.Clean(st.String()))
		}
		return err
	}
}

// shownDifferences is how many differences a start reports one by one.
const shownDifferences = 8

// verifyStart compares a cluster that has just become ready with its plan, and warns of
// what differs; with placement.strict that is an error. Where instructions are emulated
// the guests are not asked: that would cost more than it is worth.
func (c *Cluster) verifyStart(ctx context.Context, o Options, accel host.Accel) error {
	r := c.Verify(ctx, accel == host.KVM)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return tell(r, o.Spec.Placement.Strict, o.Events.notice)
}

// tell passes the differences found at a start to notice; strict makes an error of them.
func tell(r *verify.Report, strict bool, notice func(string)) error {
	diff := r.Differences()
	if len(diff) == 0 {
		return nil
	}
	if strict {
		return fmt.Errorf("not as planned, in %d of %d points: %s (leave out --strict to start nevertheless)", len(diff), len(r.Rows), diff[0])
	}
	for i, d := range diff {
		if i == shownDifferences {
			notice(fmt.Sprintf("not as planned in %d more points (nearmetal verify %s lists them)", len(diff)-i, r.Cluster))
			break
		}
		notice("not as planned: " + d.String())
	}
	return nil
}

// serveVerify answers a client's `nearmetal verify`.
func (c *Cluster) serveVerify(s *channel.Stream) {
	if c.Record().State != Ready {
		s.Reset("the cluster is not ready")
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	var r *verify.Report
	if c.far == nil {
		r = c.Verify(ctx, true)
	} else {
		var err error
		if r, err = c.verifyHosts(ctx); err != nil {
			s.Reset(err.Error())
			return
		}
	}
	if json.NewEncoder(s).Encode(r) == nil {
		s.CloseWrite(channel.LaneData)
		<-s.Gone() // the client has read it
	}
}

// maxReport bounds a report, in bytes: 1,024 VMs of 64 vCPUs come to some 20 MB.
const maxReport = 256 << 20

// Verify has the owner read the cluster's VMs and guests back.
func (c *Client) Verify(ctx context.Context) (*verify.Report, error) {
	s, err := c.Mux().Open("verify", nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	r := &verify.Report{}
	err = json.NewDecoder(io.LimitReader(s, maxReport)).Decode(r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("cluster %s ended meanwhile", c.Record.Name)
	}
	return r, err
}
