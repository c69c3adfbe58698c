package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/verify"
)

// downBound is how long a host's part may take to end with its VMs' help, and over a slow network.
const downBound = 30 * time.Second

// devicesBound is how much longer it may take where devices are given back: the kernel's own work is awaited.
const devicesBound = 2 * time.Minute

// followPart hears what the part of a host says, until it ends.
func (c *Cluster) followPart(h *farHost) {
	r := bufio.NewReaderSize(h.lead, 64<<10)
	var end error
	for {
		var ev hostEvent
		if err := readLineJSON(r, &ev); err != nil {
			// What ssh says is more than what the channel does.
			if end = h.client.Mux().Err(); end == nil {
				end = err
			}
			var broken *channel.CarrierError
			if errors.As(end, &broken) {
				end = broken.Cause
			}
			end = h.fault(fmt.Errorf("%w", end))
			break
		}
		if ev.Down {
			if ev.Why != "" {
				end = h.fault(errors.New(channel.Clean(ev.Why)))
			}
			break
		}
		if slices.Contains(h.vms, ev.Lost) {
			lost := &VMError{Err: h.fault(errors.New(channel.Clean(ev.Why)))}
			for _, l := range ev.Lines {
				if len(lost.Console) < 50 {
					lost.Console = append(lost.Console, channel.Clean(l))
				}
			}
			// First, before the record is written: the VM's streams end at the same time.
			select {
			case c.lost <- lost:
			default:
			}
			c.lostFar(lost.Error(), func(name string) bool { return name == ev.Lost })
		}
	}
	c.mu.Lock()
	h.end = end
	asked := h.asked
	c.mu.Unlock()
	close(h.gone)
	if asked {
		return
	}
	if end == nil {
		end = h.fault(errors.New("its part of the cluster has ended"))
	}
	c.write(func(r *Record) {
		for i := range r.Remote {
			if r.Remote[i].Name == h.name {
				r.Remote[i].Lost = end.Error()
			}
		}
	})
	c.lostFar(end.Error(), func(name string) bool { return slices.Contains(h.vms, name) })
	select {
	case c.lost <- end:
	default:
	}
}

// lostFar marks VMs of other hosts that have ended, and says so when no VM is left.
func (c *Cluster) lostFar(why string, which func(name string) bool) {
	left := 0
	c.write(func(r *Record) {
		for i := range r.VMs {
			v := &r.VMs[i]
			if which(v.Name) && v.State != Dead {
				v.State, v.Ended = Dead, why
				c.board.EndVM(v.Name, why)
			}
			if v.State != Dead {
				left++
			}
		}
	})
	if left == 0 {
		c.noneLeft.Do(func() { close(c.died) })
	}
}

// endHosts ends the parts on all hosts: with their VMs' help while ctx lasts, else at once.
func (c *Cluster) endHosts(ctx context.Context, help bool) error {
	if c.far == nil {
		return nil
	}
	bound := downBound
	if wantsDevices(c.Record().Spec) {
		bound += devicesBound
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, h := range c.far.hosts {
		if h.session == nil {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.endPart(ctx, h, help); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endPart ends a host's part. Its error says what may be left.
func (c *Cluster) endPart(ctx context.Context, h *farHost, help bool) error {
	c.mu.Lock()
	early := h.asked
	h.asked = true
	c.mu.Unlock()
	var err error
	select {
	case <-h.gone: // it has said so already
		early = true
	default:
	}
	if h.lead != nil && help && !early && ctx.Err() == nil {
		h.lead.Write([]byte{'d'})
		select {
		case <-h.gone:
			c.mu.Lock()
			err = h.end
			c.mu.Unlock()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) { // not: somebody is in a hurry
				err = h.fault(errors.New("its part of the cluster takes long to end, and goes on with it there (nearmetal ps on that host)"))
			}
		}
	}
	if h.client != nil {
		h.client.Close()
	}
	h.session.Close()
	return err
}

// onHosts runs a function for the client of each host that is there.
func (c *Cluster) onHosts(do func(i int, h *farHost) error) error {
	errs := make([]error, len(c.far.hosts))
	var wg sync.WaitGroup
	for i, h := range c.far.hosts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			select {
			case <-h.gone:
				return
			default:
			}
			if err := do(i, h); err != nil {
				errs[i] = h.fault(err)
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// verifyHosts has each host compare its VMs with the plan.
func (c *Cluster) verifyHosts(ctx context.Context) (*verify.Report, error) {
	parts := make([]*verify.Report, len(c.far.hosts))
	err := c.onHosts(func(i int, h *farHost) (err error) {
		parts[i], err = (&Client{h.client, c.Record()}).Verify(ctx)
		return err
	})
	all := &verify.Report{Cluster: c.Name(), Guest: true}
	for i, r := range parts {
		if r == nil {
			continue
		}
		all.Guest = all.Guest && r.Guest
		for _, row := range r.Rows {
			if !slices.Contains(c.far.hosts[i].vms, row.VM) {
				row.VM = c.far.hosts[i].name
			}
			all.Rows = append(all.Rows, row)
		}
	}
	return all, err
}

// serveConsole answers a client that asks for a VM's console.
func (c *Cluster) serveConsole(s *channel.Stream) {
	vm, follow := s.Header().Get("of"), s.Header().Get("follow") == "1"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	r := c.Record()
	if _, err := r.FindVM(vm); err != nil || vm == "" {
		s.Reset("no such VM")
		return
	}
	if c.far == nil {
		Logs(ctx, &r, vm, follow, s)
	} else {
		for _, h := range c.far.hosts {
			if !slices.Contains(h.vms, vm) {
				continue
			}
			far, err := h.client.Mux().Open("console", s.Header())
			if err != nil {
				s.Reset(err.Error())
				return
			}
			stop := context.AfterFunc(ctx, func() { far.Close() })
			io.Copy(s, far)
			stop()
			far.Close()
		}
	}
	s.CloseWrite(channel.LaneData)
	<-s.Gone()
}

// Console writes the console of a VM to w by way of the cluster's owner; see Logs.
func (c *Client) Console(ctx context.Context, vm string, follow bool, w io.Writer) error {
	h := channel.Fields{{Key: "of", Value: vm}}
	if follow {
		h.Add("follow", "1")
	}
	s, err := c.Mux().Open("console", h)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	_, err = io.Copy(harmless{w}, s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
