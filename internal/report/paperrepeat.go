package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/bench/suite"
	"nearmetal/internal/report/paper"
)

// Repeating returns the experiments that repeat a figure of a paper which was measured on one of these numbers of
// hosts.
func Repeating(list []*suite.Suite, p *paper.Paper, hosts []int) ([]*suite.Suite, error) {
	var names []string
	for _, it := range p.Items {
		if len(it.Hosts) > 0 && !slices.ContainsFunc(it.Hosts, func(n int) bool { return slices.Contains(hosts, n) }) {
			continue
		}
		for _, name := range repeaters(list, paper.Key{Paper: p.Name, Item: it.Key}) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if names == nil {
		return nil, fmt.Errorf("no figure of paper %s is on %s: nearmetal report --paper %[1]s lists them with their hosts", p.Name, hostsText(hosts))
	}
	return suite.Select(list, names)
}

func hostsText(hosts []int) string {
	if len(hosts) == 1 && hosts[0] == 1 {
		return "one host"
	}
	var list []string
	for _, n := range hosts {
		list = append(list, strconv.Itoa(n))
	}
	return strings.Join(list, " or ") + " hosts"
}

// repeaters names the experiments that repeat an item of a paper.
func repeaters(list []*suite.Suite, key paper.Key) []string {
	var out []string
	for _, s := range list {
		for _, e := range s.Experiments {
			if slices.Contains(paper.Keys(e.Seed), key) {
				out = append(out, s.Name+"/"+e.Name)
			}
		}
	}
	return out
}

// Ways returns a function of how an item of a paper is measured: a command for each experiment that repeats it.
func Ways(list []*suite.Suite, p *paper.Paper) func(paper.Key) []string {
	return func(key paper.Key) []string {
		at := slices.IndexFunc(p.Items, func(it paper.Item) bool { return it.Key == key.Item })
		if at < 0 {
			return nil
		}
		it := &p.Items[at]
		options := " --paper " + p.Name
		if len(it.Hosts) > 0 && slices.Max(it.Hosts) > 1 {
			options += " --nodes " + strings.ReplaceAll(strings.Trim(fmt.Sprint(it.Hosts), "[]"), " ", ",")
		}
		var switches []string
		for _, c := range it.Claims {
			if c.Switch != "" && !slices.Contains(switches, c.Switch) {
				switches = append(switches, c.Switch)
			}
		}
		if switches != nil {
			options += " --ablate " + strings.Join(switches, ",")
		}
		var out []string
		for _, name := range append(repeaters(list, key), it.Cases...) {
			if way := "nearmetal bench run " + name + options; !slices.Contains(out, way) {
				out = append(out, way)
			}
		}
		return out
	}
}
