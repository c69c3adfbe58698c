// Package tenant runs the VMs of a cluster as servers of an OpenStack cloud, with a tenant's rights; nothing needs an
// administrator. Every object it creates has a mark in its name or metadata, which is in the cluster's journal before
// the object is created. Therefore an object is found again by a property that no other object has.
package tenant

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/lazyregexp"
)

func init() {
	fromHere()
	backend.Register("openstack", func(name string) (backend.Driver, error) {
		o, err := parse(name)
		if err != nil {
			return nil, err
		}
		return &driver{name: name, o: o}, nil
	})
}

// fromHere makes processes that this one starts also find the clouds.yaml of this directory, because a cluster's
// owner runs in another.
func fromHere() {
	const name, variable = "clouds.yaml", "OS_CLIENT_CONFIG_FILE"
	if _, err := os.Stat(name); err != nil || os.Getenv(variable) != "" {
		return
	}
	if path, err := filepath.Abs(name); err == nil {
		os.Setenv(variable, path)
	}
}

// options are the parts of a backend's name: openstack:CLOUD?flavor=F&image=I&network=N.
type options struct {
	cloud   string // entry of clouds.yaml; "": OS_CLOUD, or the variables OS_*
	flavor  string // name or ID, like image and network
	image   string
	network string
	group   string // policy of the server group; "none": no group
	guard   string // security group: own or none
	vnic    string // type of the ports: normal or direct
	from    string // addresses that may connect to the agents, as a CIDR
}

var (
	wordForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9 ._:@/()+-]{0,254}$`)
	policies = []string{"affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity", "none"}
)

// anywhere is the default for the addresses that may connect to agents.
const anywhere = "0.0.0.0/0"

func parse(name string) (options, error) {
	o := options{group: "soft-affinity", guard: "own", vnic: "normal", from: anywhere}
	bad := func(format string, a ...any) (options, error) {
		return o, fmt.Errorf("backend %.120q: %s: write openstack:CLOUD?flavor=NAME&image=NAME&network=NAME", name, fmt.Sprintf(format, a...))
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(name, "openstack"), ":")
	cloud, query, _ := strings.Cut(rest, "?")
	o.cloud = cloud
	if cloud != "" && !wordForm().MatchString(cloud) {
		return bad("%.60q is not the name of a cloud", cloud)
	}
	v, err := url.ParseQuery(query)
	if err != nil {
		return bad("%v", err)
	}
	for key, to := range map[string]*string{"flavor": &o.flavor, "image": &o.image, "network": &o.network, "group": &o.group, "security": &o.guard, "vnic": &o.vnic, "from": &o.from} {
		if list := v[key]; len(list) == 1 {
			*to = list[0]
			if !wordForm().MatchString(*to) {
				return bad("%s=%.60q is not a name", key, *to)
			}
		} else if len(list) > 1 {
			return bad("%s is there twice", key)
		}
		v.Del(key)
	}
	for key := range v {
		return bad("%.60q is not known", key)
	}
	if !slices.Contains(policies, o.group) {
		return bad("group=%.60q is none of %s", o.group, strings.Join(policies, ", "))
	}
	if o.guard != "own" && o.guard != "none" {
		return bad("security=%.60q is neither own nor none", o.guard)
	}
	if o.vnic != "normal" && o.vnic != "direct" {
		return bad("vnic=%.60q is neither normal nor direct", o.vnic)
	}
	if p, err := netip.ParsePrefix(o.from); err != nil || !p.Addr().Is4() {
		return bad("from=%.60q is not an IPv4 network", o.from)
	}
	if o.guard == "none" && o.from != anywhere {
		return bad("from=%.60q needs a security group, and security=none has none", o.from)
	}
	return o, nil
}
