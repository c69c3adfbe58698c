package client

import (
	"context"
	"time"

	"nearmetal/internal/guest/channel"
)

// pauseTimeout bounds a command to the backend.
const pauseTimeout = 10 * time.Second

// Hold stops the cluster's VMs, or lets them go on, until somebody says otherwise. It returns when they have.
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

// Pauser holds a VM's pauses for something that runs in it.
type Pauser struct{ s *channel.Stream }

// Pauser returns one for the VM; Close it when what it is for has ended.
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

// Pause says whether the VM is to stop, and returns when the owner has taken note.
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
