package node

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/spec"
)

// Request is a job's request for its VMs on each node, in the plugin's format (slurm/request.h): "1 KEY=VALUE …" with
// %XX for bytes that are not plain.
type Request struct {
	File          string // cluster file, absolute; "": none
	VMs, VCPUs    int    // per node, per VM; 0: not set
	Memory        uint64 // per VM, bytes; 0: not set
	Root          string
	VF            string  // [TYPE:]N
	Region        *uint64 // bytes; nil: not set
	Policy        string
	Pages         string // "2MiB", "1GiB" or "ordinary"; "": not set
	KeepForStep   bool   // VMs end with their step, not with the job
	WithoutValues bool   // only --vm was given, without values
	RootWrites    bool   // the site lets VMs of root write to shares; not set by the user
}

// Bounds of a request and of one value, in bytes: below NM_REQUEST_MAX and NM_VALUE_MAX.
const (
	maxRequest = 4095
	maxValue   = 1023
)

var errRequest = errors.New("the job's request for VMs is broken: submit it again")

// keys are the keys of a request, in their fixed order (enum nm_key, slurm/values.h). Each parses its value, which
// has exactly one valid form: slurm/testdata/requests.txt has test cases.
var keys = []struct {
	name string
	set  func(r *Request, value string) bool
}{
	{"vm", func(_ *Request, v string) bool { return v == "1" }},
	{"file", func(r *Request, v string) bool { r.File = v; return isPath(v) }},
	{"vms", func(r *Request, v string) bool { n, ok := number(v, 1, 1024); r.VMs = int(n); return ok }},
	{"vcpus", func(r *Request, v string) bool { n, ok := number(v, 1, 4096); r.VCPUs = int(n); return ok }},
	{"memory", func(r *Request, v string) (ok bool) { r.Memory, ok = number(v, 128<<20, 64<<40); return ok }},
	{"root", func(r *Request, v string) bool { r.Root = v; return v == "host" || isPath(v) }},
	{"vf", func(r *Request, v string) bool { r.VF = v; return isVF(v) }},
	{"region", func(r *Request, v string) bool {
		n, ok := number(v, 0, 1<<40)
		r.Region = &n
		return ok && n&(n-1) == 0 && (n == 0 || n >= 1<<20)
	}},
	{"policy", func(r *Request, v string) bool {
		r.Policy = v
		return v == "auto" || v == "consolidate" || v == "spread"
	}},
	{"pages", func(r *Request, v string) bool { _, ok := pageSizes[v]; r.Pages = v; return ok }},
	{"keep", func(r *Request, v string) bool { r.KeepForStep = v == "step"; return v == "step" || v == "job" }},
}

// ParseRequest parses a request.
func ParseRequest(text string) (Request, error) {
	r := Request{WithoutValues: true}
	fields := strings.Split(text, " ")
	if len(text) > maxRequest || fields[0] != "1" || len(fields) < 2 {
		return Request{}, errRequest
	}
	next := 0 // index of the next allowed key in keys
	for _, f := range fields[1:] {
		name, raw, _ := strings.Cut(f, "=")
		value, ok := unescape(raw)
		for next < len(keys) && keys[next].name != name {
			next++
		}
		if !ok || next == len(keys) || !keys[next].set(&r, value) {
			return Request{}, errRequest
		}
		next++
		if name != "vm" && name != "keep" {
			r.WithoutValues = false
		}
	}
	return r, nil
}

// number parses a decimal number without leading zeros.
func number(text string, least, most uint64) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && n >= least && n <= most && strconv.FormatUint(n, 10) == text
}

// isPath reports whether text is an absolute path without control characters.
func isPath(text string) bool {
	return strings.HasPrefix(text, "/") && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// isVF reports whether text is [TYPE:]N, with N from 1 to 64.
func isVF(text string) bool {
	kind, digits, typed := strings.Cut(text, ":")
	if !typed {
		kind, digits = "-", text
	}
	word := func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("_-.", c) }
	n, err := strconv.ParseUint(digits, 10, 64)
	return len(text) < 72 && err == nil && n >= 1 && n <= 64 && kind != "" && len(kind) <= 64 && !strings.ContainsFunc(kind, word)
}

func isAlphanumeric(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// unescape decodes a value, in which exactly the bytes that are not plain are %XX.
func unescape(s string) (string, bool) {
	plain := func(c byte) bool { return isAlphanumeric(rune(c)) || strings.IndexByte("-_./:,+@", c) >= 0 }
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '%' {
			if !plain(c) {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil || n == 0 || plain(byte(n)) || fmt.Sprintf("%02X", n) != s[i+1:i+3] {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), b.Len() <= maxValue
}

// Cluster returns the cluster file for the request, without the parts that depend on the node. It reads the request's
// own file with the rights of the calling user. dir is the job's working directory, to which paths in the file are
// relative.
func (r *Request) Cluster(dir string) (*spec.Cluster, error) {
	c := &spec.Cluster{}
	if r.File != "" {
		var err error
		if c, err = spec.Load(r.File); err != nil {
			return nil, err
		}
	}
	set := func(option, key, value string) error {
		if value == "" || value == "0" {
			return nil
		}
		if err := spec.Set(c, key, value); err != nil {
			return fmt.Errorf("--%s: %w", option, err)
		}
		return nil
	}
	if r.VMs > 0 && len(c.VMs) > 1 {
		return nil, fmt.Errorf("--vms-per-node: %s has %d groups of VMs: write their counts there", r.File, len(c.VMs))
	}
	var memory string
	if r.Memory > 0 {
		memory = spec.Size(r.Memory).String()
	}
	for _, v := range [][3]string{
		{"vms-per-node", "vms[].count", strconv.Itoa(r.VMs)}, {"vm-vcpus", "vms[].vcpus", strconv.Itoa(r.VCPUs)},
		{"vm-memory", "vms[].memory", memory}, {"vm-root", "root", r.Root}, {"vm-policy", "placement.policy", r.Policy},
		{"vm-pages", "placement.pages", r.Pages},
	} {
		if err := set(v[0], v[1], v[2]); err != nil {
			return nil, err
		}
	}
	if r.Region != nil {
		size := spec.Size(*r.Region)
		c.Region.Size = &size
	}
	if on := backend.Scheme(c.Backend); on != "" && on != backend.Default {
		return nil, fmt.Errorf("%s: backend: %s: a job's VMs are processes of the job, which %s alone makes: leave the key out", r.File, on, backend.Default)
	}
	if len(c.Placement.Hosts) > 0 {
		return nil, fmt.Errorf("%s: placement.hosts: a job's hosts are Slurm's choice: leave the key out", r.File)
	}
	c.RootWrites = c.RootWrites || r.RootWrites
	defaults, err := siteDefaults()
	if err != nil {
		return nil, err
	}
	for _, d := range defaults {
		spec.Under(c, d)
	}
	if c.Shares == nil {
		c.Shares = []spec.Share{}
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			if share, ok := spec.DefaultShare(real); ok {
				if os.Geteuid() == 0 && !c.RootWrites {
					share.Mode = "ro"
				}
				c.Shares = append(c.Shares, share)
			}
		}
	}
	c.Resolve(dir)
	addShares(c, defaults)
	if c.Home == "share" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("home: share: %w", err)
		}
		if err := c.ShareHome(u.HomeDir, os.Geteuid() == 0); err != nil {
			return nil, err
		}
	}
	if err := spec.Validate(c); err != nil {
		return nil, err
	}
	return c, nil
}
