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

// Request is what a job wants of its VMs on each node: the plugin's format
// (slurm/request.h), "1 KEY=VALUE …" with %XX for bytes that are not plain.
type Request struct {
	File          string // cluster file, absolute; "": none
	VMs, VCPUs    int    // of each node, of each VM; 0: not said
	Memory        uint64 // of each VM, bytes; 0: not said
	Root          string
	VF            string  // [TYPE:]N
	Region        *uint64 // bytes; nil: not said
	Policy        string
	Pages         string // "2MiB", "1GiB" or "ordinary"; "": not said
	KeepForStep   bool   // VMs end with their step, not with the job
	WithoutValues bool   // nothing but --vm was said
	RootWrites    bool   // the site lets VMs of root write to shares; no user's word
}

// maxRequest bounds a request, in bytes: NM_REQUEST_MAX.
const maxRequest = 4096

var errRequest = errors.New("the job's request for VMs is broken: submit it again")

// ParseRequest reads a request.
func ParseRequest(text string) (Request, error) {
	r := Request{WithoutValues: true}
	fields := strings.Split(text, " ")
	if len(text) >= maxRequest || fields[0] != "1" {
		return r, errRequest
	}
	seen := map[string]bool{}
	for _, f := range fields[1:] {
		key, raw, ok := strings.Cut(f, "=")
		value, err := unescape(raw)
		if !ok || err != nil || seen[key] {
			return r, errRequest
		}
		seen[key] = true
		if err := r.set(key, value); err != nil {
			return r, errRequest
		}
		if key != "vm" && key != "keep" {
			r.WithoutValues = false
		}
	}
	return r, nil
}

// set sets one key.
func (r *Request) set(key, value string) error {
	number := func(bits int) (uint64, error) { return strconv.ParseUint(value, 10, bits) }
	var n uint64
	var err error
	switch key {
	case "vm":
		if value != "1" {
			return errRequest
		}
	case "file":
		if !filepath.IsAbs(value) {
			return errRequest
		}
		r.File = value
	case "vms":
		n, err = number(16)
		r.VMs = int(n)
	case "vcpus":
		n, err = number(16)
		r.VCPUs = int(n)
	case "memory":
		r.Memory, err = number(63)
	case "region":
		n, err = number(63)
		r.Region = &n
	case "root":
		r.Root = value
	case "vf":
		r.VF = value
	case "policy":
		r.Policy = value
	case "pages":
		if _, ok := pageSizes[value]; !ok {
			return errRequest
		}
		r.Pages = value
	case "keep":
		r.KeepForStep = value == "step"
	default:
		return errRequest
	}
	return err
}

// unescape reads %XX.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+2 >= len(s) {
				return "", errRequest
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil || n == 0 {
				return "", errRequest
			}
			c, i = byte(n), i+2
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// Cluster is the cluster file that the request asks for, without what depends on the node. It
// reads the request's own file as the user who calls it. dir is the job's working directory:
// relative paths of the file are taken from it.
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
