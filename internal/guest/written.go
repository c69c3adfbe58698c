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

// writtenMax bounds what a VM may say of its files, in bytes: 1,000 paths of 4 KiB.
const writtenMax = 4 << 20

// Written returns the files that were written in a VM ("": the client's own) and are in none of its
// shares, in no order, at most about 1,000; more says that there are others. With a since, only
// those changed in that time up to now; 0: all. What is under /tmp, /var/tmp, /var/log, /var/cache and /run,
// and in folders called .cache, is left out. The names are the VM's word: they may hold any character but NUL.
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
