package main

import (
	"fmt"
	"io"
	"os"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/words"
)

// showRequest writes the request of a plan to OpenStack, in one of the formats whose names begin with openstack.
func showRequest(w io.Writer, format string, c *spec.Cluster, p *plan.Plan) error {
	r, err := openstack.Make(p, c)
	if err != nil {
		return err
	}
	switch format {
	case "openstack-tofu":
		return r.Tofu(w)
	case "openstack-json":
		return terminal.PrintJSON(w, r)
	case "openstack-yaml":
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(r); err != nil {
			return err
		}
		return e.Close()
	}
	return r.Commands(w)
}

// matched describes how well a cloud's flavors fit one that a plan requests.
type matched struct {
	Wanted  openstack.Flavor `json:"wanted"`
	Servers []string         `json:"servers"`
	Flavors []openstack.Fit  `json:"flavors"`
}

// showMatch writes which flavors of a file fit a plan, and what each lacks. It fails if no flavor fits one of the VMs.
func showMatch(w io.Writer, file, format string, all bool, c *spec.Cluster, p *plan.Plan) error {
	r, err := openstack.Make(p, c)
	if err != nil {
		return err
	}
	in := os.Stdin
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return err
		}
		defer in.Close()
	}
	have, err := openstack.ReadFlavors(in)
	if err != nil {
		return fmt.Errorf("%s: %w", text.Clean(file), err)
	}
	var list []matched
	missing := ""
	for _, f := range r.Flavors {
		m := matched{Wanted: f, Flavors: openstack.Match(f, have)}
		for _, s := range r.Servers {
			if s.Flavor == f.Name {
				m.Servers = append(m.Servers, s.Name)
			}
		}
		if len(m.Flavors) == 0 || !m.Flavors[0].Fits {
			missing = text.Clean(m.Servers[0] + openstack.SoleLack(m.Flavors))
		}
		list = append(list, m)
	}
	if format == "json" {
		err = terminal.PrintJSON(w, list)
	} else {
		err = textMatch(w, list, all)
	}
	if err == nil && missing != "" {
		err = findings(fmt.Errorf("no flavor fits %s; nearmetal plan --format openstack shows one that does", missing))
	}
	return err
}

// fewFlavors is the number of flavors shown that do not fit, without --all.
const fewFlavors = 3

func textMatch(w io.Writer, list []matched, all bool) error {
	for _, m := range list {
		fmt.Fprintf(w, "%s (%d vCPUs, %d MiB):\n", words.Count(len(m.Servers), "VM", "VMs"), m.Wanted.VCPUs, m.Wanted.RAMMiB)
		misfits := 0
		for _, f := range m.Flavors {
			name := text.Clean(f.Flavor)
			if f.Fits {
				with := ""
				for _, k := range openstack.Keys(f.Image) {
					with += " " + k + "=" + f.Image[k]
				}
				if with != "" {
					with = ", with these properties of its image:" + with
				}
				fmt.Fprintf(w, "  %s fits%s\n", name, with)
			} else {
				if misfits++; misfits > fewFlavors && !all {
					continue
				}
				fmt.Fprintf(w, "  %s lacks:\n", name)
				for _, l := range f.Lacks {
					fmt.Fprintf(w, "    - %s\n", text.Clean(l))
				}
			}
			for _, o := range f.Without {
				fmt.Fprintf(w, "    ~ %s\n", text.Clean(o))
			}
			for _, o := range f.Over {
				fmt.Fprintf(w, "    + %s\n", text.Clean(o))
			}
		}
		if more := misfits - fewFlavors; more > 0 && !all {
			fmt.Fprintf(w, "  %d more lack more (--explain shows them)\n", more)
		}
	}
	return nil
}
