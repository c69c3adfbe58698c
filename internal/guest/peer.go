package guest

import (
	"fmt"
	"strconv"
	"sync"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// PeerPolicy decides which requests of a VM to another VM of its job are permitted: to run a launcher's daemon or
// rank as the job's user, with the job's limits. Everything else is rejected. The agent of a VM states who asks, and
// root in that VM can replace its agent. Therefore users and limits in a header are checked here, or not used.
//
// Check is the Policy of a Switchboard. It may be called from any goroutine.
type PeerPolicy struct {
	uid, gid uint32
	groups   map[uint32]bool
	limits   []string

	mu   sync.Mutex
	last map[string][]string // by VM: the limits of the job's last command in it
}

// NewPeerPolicy returns the policy of a job whose user has these IDs. Requests of a VM in which a client of the job
// ran a command get that command's limits, those of any other VM get limits.
func NewPeerPolicy(uid, gid uint32, groups []uint32, limits []Rlimit) *PeerPolicy {
	p := &PeerPolicy{uid: uid, gid: gid, groups: map[uint32]bool{gid: true}, last: map[string][]string{}}
	for _, g := range groups {
		p.groups[g] = true
	}
	for _, l := range limits {
		p.limits = append(p.limits, l.text())
	}
	return p
}

// Check returns the header with which a stream is opened to a VM, or an error that rejects it. From is the VM that
// asks, "" for a client of the cluster's owner: a client has the user's rights.
func (p *PeerPolicy) Check(from, to, kind string, h channel.Fields) (channel.Fields, error) {
	if from == "" {
		if kind == "exec" && h.Get("uid") == strconv.FormatUint(uint64(p.uid), 10) {
			p.mu.Lock()
			p.last[to] = h.All("rlimit")
			p.mu.Unlock()
		}
		return h, nil
	}
	if kind != "exec" {
		return nil, fmt.Errorf("a VM may not open streams of kind %s in another", kind)
	}
	out := make(channel.Fields, 0, len(h)+8)
	once := map[string]bool{}
	for _, f := range h {
		switch f.Key {
		case "arg", "env":
			out = append(out, f)
			continue
		case "group":
			if n, err := parseID(f.Value); err != nil || !p.groups[n] {
				return nil, p.stranger("group", f.Value, to)
			}
			out = append(out, f)
			continue
		}
		if once[f.Key] {
			return nil, fmt.Errorf("a VM sent the field %q twice", text.CleanLines(f.Key))
		}
		once[f.Key] = true
		switch f.Key {
		case channel.KeyVM, "dir", "dir-optional", "no-stdin", "umask":
			out = append(out, f)
		case "uid":
			if n, err := parseID(f.Value); err != nil || n != p.uid {
				return nil, p.stranger("user", f.Value, to)
			}
		case "gid":
			n, err := parseID(f.Value)
			if err != nil || !p.groups[n] {
				return nil, p.stranger("group", f.Value, to)
			}
			out.AddInt("gid", int64(n))
		default:
			return nil, fmt.Errorf("a VM may not ask another VM for %q: only to run a program as the job's user", text.CleanLines(f.Key))
		}
	}
	if !once["uid"] || !once["gid"] {
		return nil, fmt.Errorf("the agent of %s does not say which user asks", from)
	}
	out.AddInt("uid", int64(p.uid))
	p.mu.Lock()
	limits, ok := p.last[from]
	p.mu.Unlock()
	if !ok {
		limits = p.limits
	}
	for _, l := range limits {
		out.Add("rlimit", l)
	}
	return out, nil
}

func (p *PeerPolicy) stranger(what, id, to string) error {
	return fmt.Errorf("%s %q may not run programs in %s from another VM: only the job's user %d and its groups may",
		what, text.CleanLines(id), to, p.uid)
}

// parseID parses the number of a user or group.
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}
