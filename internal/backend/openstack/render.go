package openstack

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"nearmetal/internal/text"
	"nearmetal/internal/words"
)

// diskGiB is the default size of a flavor's disk: an image of a distribution fits.
const diskGiB = 20

// Commands writes a request as a shell script for the openstack client, with the losses as its first comments.
// NETWORK, IMAGE, VFNET, DISK and USER_DATA are the script's variables: the tenant's network, the image, the network
// of the VFs, the size of the disk to which a server's image is copied, and a file for the servers' cloud-init.
func (r *Request) Commands(w io.Writer) error {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.\n")
	b.WriteString("# usage: NETWORK=… IMAGE=… " + r.vfnetUse() + "sh FILE [admin|tenant]; without a word: both\n" +
		"# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.\n" +
		"# USER_DATA=… is a file for the servers' cloud-init.\nset -eu\npart=${1:-all}\n\n")
	for _, l := range r.LossLines() {
		b.WriteString("# " + l + "\n")
	}
	if len(r.Lost) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString("if [ \"$part\" != tenant ]; then\n")
	for _, a := range r.Aliases {
		fmt.Fprintf(&b, "\t# nova.conf of nova-api and nova-compute: [pci] alias = {\"name\": %q, \"vendor_id\": …, \"product_id\": …, \"numa_policy\": \"required\"}\n", a)
	}
	for _, f := range r.Flavors {
		fmt.Fprintf(&b, "\topenstack flavor create --vcpus %d --ram %d --disk \"${DISK:-%d}\"", f.VCPUs, f.RAMMiB, diskGiB)
		properties(&b, f.Specs)
		b.WriteString(" \\\n\t\t" + text.Shell(f.Name) + "\n")
	}
	b.WriteString("fi\n[ \"$part\" != admin ] || exit 0\n\n")
	if len(r.Image) > 0 {
		b.WriteString("# An image of your own; else a copy of it, or the administrator.\nopenstack image set")
		properties(&b, r.Image)
		b.WriteString(" \\\n\t\t\"$IMAGE\"\n")
	}
	hint := ""
	if r.Group != nil {
		fmt.Fprintf(&b, "group=$(openstack server group create -f value -c id --policy %s %s)\n", r.Group.Policy, text.Shell(r.Group.Name))
		hint = " --hint \"group=$group\""
	}
	for _, s := range r.Servers {
		for _, p := range s.Ports {
			of := ""
			if p.PF != "" {
				of = " # a VF of a card like " + p.PF
			}
			fmt.Fprintf(&b, "openstack port create --network \"$VFNET\" --vnic-type %s %s%s\n", p.VNIC, text.Shell(p.Name), of)
		}
		fmt.Fprintf(&b, "openstack server create --flavor %s --image \"$IMAGE\" --network \"$NETWORK\"", text.Shell(s.Flavor))
		for _, p := range s.Ports {
			b.WriteString(" --port " + text.Shell(p.Name))
		}
		fmt.Fprintf(&b, "%s ${USER_DATA:+--config-drive true --user-data \"$USER_DATA\"} %s\n", hint, text.Shell(s.Name))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// vfnetUse returns the variable for the network of the VFs, if the request has ports.
func (r *Request) vfnetUse() string {
	if slices.ContainsFunc(r.Servers, func(s Server) bool { return len(s.Ports) > 0 }) {
		return "VFNET=… "
	}
	return ""
}

// properties writes --property options, one per line, in the order of their keys.
func properties(b *strings.Builder, m map[string]string) {
	for _, k := range Keys(m) {
		fmt.Fprintf(b, " \\\n\t\t--property %s", text.Shell(k+"="+m[k]))
	}
}

// LossLines returns the losses, one line each, without control characters. None: all of the plan is carried out.
func (r *Request) LossLines() []string {
	if len(r.Lost) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("OpenStack does not promise %s of this plan:", words.Count(len(r.Lost), "part", "parts"))}
	for _, l := range r.Lost {
		lines = append(lines, fmt.Sprintf("  %s: %s; %s", l.Part, l.Why, l.Means))
	}
	return lines
}

// Tofu writes a request as a configuration of OpenTofu (and Terraform) in its JSON syntax, for a file NAME.tf.json.
// The provider is terraform-provider-openstack/openstack, from 1.53 on or 2.
func (r *Request) Tofu(w io.Writer) error {
	type object = map[string]any
	ref := func(kind, name, field string) string { return fmt.Sprintf("${%s.%s.%s}", kind, name, field) }
	flavors, ports, servers := object{}, object{}, object{}
	ids := map[string]string{}
	for _, f := range r.Flavors {
		ids[f.Name] = label(f.Name)
		flavors[label(f.Name)] = object{"name": f.Name, "vcpus": f.VCPUs, "ram": f.RAMMiB, "disk": "${var.disk}", "extra_specs": f.Specs}
	}
	resources := object{"openstack_compute_flavor_v2": flavors}
	if r.Group != nil {
		resources["openstack_compute_servergroup_v2"] = object{"cluster": object{"name": r.Group.Name, "policies": []string{r.Group.Policy}}}
	}
	for _, s := range r.Servers {
		networks := []object{{"uuid": "${var.network}"}}
		for _, p := range s.Ports {
			ports[label(p.Name)] = object{"name": p.Name, "network_id": "${var.vf_network}", "binding": []object{{"vnic_type": p.VNIC}}}
			networks = append(networks, object{"port": ref("openstack_networking_port_v2", label(p.Name), "id")})
		}
		server := object{"name": s.Name, "image_id": "${var.image}", "flavor_id": ref("openstack_compute_flavor_v2", ids[s.Flavor], "id"), "network": networks,
			"user_data": "${var.user_data}", "config_drive": "${var.user_data != null}"}
		if r.Group != nil {
			server["scheduler_hints"] = []object{{"group": ref("openstack_compute_servergroup_v2", "cluster", "id")}}
		}
		servers[label(s.Name)] = server
	}
	variables := object{"network": object{"description": "id of the tenant's network"}, "image": object{"description": imageText(r.Image)},
		"disk":      object{"description": "GiB of the flavors' disk; Nova lets tenants use none of 0 GiB with an image", "default": diskGiB},
		"user_data": object{"description": "text for the servers' cloud-init", "type": "string", "default": nil}}
	if len(ports) > 0 {
		resources["openstack_networking_port_v2"] = ports
		variables["vf_network"] = object{"description": "id of the network whose ports are virtual functions"}
	}
	resources["openstack_compute_instance_v2"] = servers
	file := object{
		"terraform": object{"required_providers": object{"openstack": object{"source": "terraform-provider-openstack/openstack"}}},
		"variable":  variables,
		"resource":  resources,
	}
	if lines := r.LossLines(); len(lines) > 0 {
		file["//"] = lines
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(file)
}

// imageText returns the requirements on the image of a request.
func imageText(image map[string]string) string {
	if len(image) == 0 {
		return "id of the image"
	}
	var list []string
	for _, k := range Keys(image) {
		list = append(list, k+"="+image[k])
	}
	return "id of an image with the properties " + strings.Join(list, ", ")
}

// label converts a name into one that OpenTofu accepts.
func label(name string) string {
	return "n_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
}

// Keys returns the keys of specs or properties in order.
func Keys(m map[string]string) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
