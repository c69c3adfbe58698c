package guest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"nearmetal/internal/guest/channel"
)

// writtenMax bounds a VM's report on its files, in bytes: 1,000 paths of 4 KiB.
const writtenMax = 4 << 20

// Written returns the files that were written in a VM ("": the client's own) outside its shares, unordered, at most
// about 1,000; more reports that others exist. With a since, only those changed within that time; 0: all. Files under
// /tmp, /var/tmp, /var/log, /var/cache and /run, and in directories called .cache, are omitted. The VM supplies the
// names: they may contain any character but NUL.
func (c *Client) Written(ctx context.Context, vm string, since time.Duration) (files []string, more bool, err error) {
	var h channel.Fields
	if since > 0 {
		h.Add("age", strconv.FormatInt(since.Milliseconds()+1, 10))
	}
	s, err := c.open("written", vm, append(h, identity(0, 0, nil)...))
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Reset("given up") })
	defer stop()
	s.CloseWrite(channel.LaneData)
	text, err := io.ReadAll(io.LimitReader(s.Lane(channel.LaneData), writtenMax+1))
	if err != nil {
		return nil, false, err
	}
	if len(text) > writtenMax {
		s.Reset("too long")
		return nil, false, fmt.Errorf("%s: the list of written files is longer than %d bytes", vm, writtenMax)
	}
	if err := copyStatus(ctx, s, vm); err != nil {
		return nil, false, err
	}
	for len(text) > 0 {
		path, rest, ok := bytes.Cut(text, []byte{0})
		switch {
		case !ok:
			return nil, false, fmt.Errorf("%s: the list of written files was cut short", vm)
		case len(path) == 0:
			more = true
		default:
			files = append(files, string(path))
		}
		text = rest
	}
	return files, more, nil
}
