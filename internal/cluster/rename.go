package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/spec"
)

// rename changes the name of a cluster that is kept: its directory moves, and the record says the new one. Nothing
// in a VM knows the name, and what is connected stays so. Paths into the old directory, which nearmetal env has
// printed, lead nowhere afterwards.
func (c *Cluster) rename(name string) error {
	if err := spec.CheckName(name); err != nil {
		return err
	}
	switch {
	case !c.kept:
		return fmt.Errorf("cluster %s belongs to the command that started it: only one of nearmetal up can be renamed", c.Name())
	case c.groups.parent != "":
		return fmt.Errorf("cluster %s cannot be renamed: with isolation: strict its cgroups have its name", c.Name())
	}
	base, err := Base()
	if err != nil {
		return err
	}
	b, err := lockBase(base) // no other cluster takes the name meanwhile
	if err != nil {
		return err
	}
	defer b.Close()
	to := filepath.Join(base, name)
	if _, err := sweepOne(to, name); err != nil {
		return err
	}
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a cluster called %q runs already: take another name", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" || c.rec.State != Ready {
		return errors.New("the cluster is not ready")
	}
	from := c.dir
	if err := os.Rename(from, to); err != nil {
		return err
	}
	old := c.rec
	s, p := *old.Spec, *old.Plan // copies of the record share them
	s.Name, p.Cluster = name, name
	c.dir, c.rec.Name, c.rec.Spec, c.rec.Plan = to, name, &s, &p
	if err := c.rec.write(to); err != nil {
		c.dir, c.rec = from, old
		return errors.Join(err, os.Rename(to, from))
	}
	return nil
}

// serveRename answers `nearmetal rename`.
func (c *Cluster) serveRename(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	c.holding.Lock()
	err = c.rename(f.Get("name"))
	c.holding.Unlock()
	if err != nil {
		s.Reset(err.Error())
		return
	}
	s.Send(channel.Fields{{Key: "name", Value: c.Name()}})
	<-s.Gone()
}

// Rename changes the name of the cluster. It returns when that is done.
func (c *Client) Rename(ctx context.Context, name string) error {
	s, err := c.Mux().Open("rename", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(channel.Fields{{Key: "name", Value: name}}); err != nil {
		return err
	}
	_, err = s.Receive(ctx)
	return err
}
