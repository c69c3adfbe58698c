package client

import (
	"context"
	"time"

	"nearmetal/internal/guest/channel"
)

// pauseTimeout bounds a command to the backend.
const pauseTimeout = 10 * time.Second

// Hold stops the cluster's VMs, or resumes them, until the next call. It returns when all VMs have stopped or
// resumed.
func (c *Client) Hold(ctx context.Context, stop bool) error {
	s, err := c.Mux().Open("hold", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	value := "0"
	if stop {
		value = "1"
	}
	if err := s.Send(channel.Fields{{Key: "stop", Value: value}}); err != nil {
		return err
	}
	_, err = s.Receive(ctx)
	return err
}

// Pauser pauses and resumes a VM on behalf of a program that runs in it.
type Pauser struct{ s *channel.Stream }

// Pauser returns a Pauser for the VM. The caller closes it when the program has ended.
func (c *Client) Pauser(vm string) (*Pauser, error) {
	s, err := c.Mux().Open("pause", nil)
	if err != nil {
		return nil, err
	}
	if err := s.Send(channel.Fields{{Key: "of", Value: vm}}); err != nil {
		s.Close()
		return nil, err
	}
	return &Pauser{s}, nil
}

// Pause states whether the VM should stop, and returns when the owner has recorded it.
func (p *Pauser) Pause(stop bool) error {
	value := "0"
	if stop {
		value = "1"
	}
	if err := p.s.Send(channel.Fields{{Key: "stop", Value: value}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	_, err := p.s.Receive(ctx)
	return err
}

// Close ends the hold.
func (p *Pauser) Close() error { return p.s.Close() }
