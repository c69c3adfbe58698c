package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// Copy is a copy of a file or of a directory with its contents: regular files, directories and symbolic links, with
// their modes and times.
type Copy struct {
	VM       string // "" for the client's own
	Local    string // path on this side
	Remote   string // absolute path in the VM
	UID, GID uint32 // user and group as whom the agent reads and writes
	Groups   []uint32
}

// Push copies Local to Remote, like cp -r -T: Remote is the new name, and its directory must exist.
func (c *Client) Push(ctx context.Context, k Copy) error {
	s, stop, err := c.openCopy(ctx, "push", k)
	if err != nil {
		return err
	}
	defer stop()
	werr := sendTree(s, k.Local)
	var local *localError
	if errors.As(werr, &local) {
		s.Reset("the sender failed")
		return werr
	}
	s.CloseWrite(channel.LaneData)
	if err := copyStatus(ctx, s, k.VM); err != nil {
		return err
	}
	return werr
}

// Pull copies Remote to Local, the new name; its directory must exist. Data from the VM is never written outside
// Local.
func (c *Client) Pull(ctx context.Context, k Copy) error {
	s, stop, err := c.openCopy(ctx, "pull", k)
	if err != nil {
		return err
	}
	defer stop()
	s.CloseWrite(channel.LaneData)
	rerr := receiveTree(s, k.Local)
	var local *localError
	if errors.As(rerr, &local) {
		s.Reset("the receiver failed")
		return rerr
	}
	if err := copyStatus(ctx, s, k.VM); err != nil {
		return err
	}
	return rerr
}

func (c *Client) openCopy(ctx context.Context, kind string, k Copy) (*channel.Stream, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(k.Remote, "/") {
		return nil, nil, fmt.Errorf("%s: a path in the VM must be absolute", k.Remote)
	}
	h := append(channel.Fields{{Key: "path", Value: k.Remote}}, identity(k.UID, k.GID, k.Groups)...)
	s, err := c.open(kind, k.VM, h)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset("given up") })
	return s, func() { stop(); s.Close() }, nil
}

// copyStatus waits for the agent's result of a copy. Its errors name the VM, unless vm is "".
func copyStatus(ctx context.Context, s *channel.Stream, vm string) error {
	said := func(text string) error {
		switch {
		case vm == "":
		case strings.HasPrefix(text, "/"): // of a file: in the user's notation
			text = vm + ":" + text
		default:
			text = vm + ": " + strings.TrimPrefix(text, vm+": ")
		}
		return errors.New(text)
	}
	fault := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(s.Lane(channel.LaneError), 4096))
		fault <- text.CleanLines(strings.TrimSpace(string(b)))
	}()
	for {
		f, err := s.Receive(ctx)
		if err != nil {
			if err == io.EOF {
				err = errors.New("the agent ended the copy without a status")
			}
			return err
		}
		switch {
		case f.Get("exit") == "0":
			return nil
		case f.Get("error") != "":
			return said(text.CleanLines(f.Get("error")))
		case f.Get("exit") != "" || f.Get("signal") != "":
			if t := <-fault; t != "" {
				return said(t)
			}
			return said("the agent could not finish the copy")
		}
	}
}
