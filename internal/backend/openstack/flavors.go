package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxFlavors and maxList bound the input: the number of flavors in a cloud's list, and its size in bytes.
const (
	maxFlavors = 10000
	maxList    = 32 << 20
)

// ReadFlavors reads the flavors of a cloud: the output of `openstack flavor list --long -f json` or `openstack flavor
// show NAME -f json`, of any release, or the answer of Nova's API (/flavors/detail). If an entry is not a flavor, the
// error names it.
func ReadFlavors(r io.Reader) ([]Flavor, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxList+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxList {
		return nil, fmt.Errorf("over %d MiB: not a list of flavors", maxList>>20)
	}
	var entries []map[string]any
	var answer struct {
		Flavors []map[string]any `json:"flavors"`
	}
	if err := json.Unmarshal(text, &entries); err != nil {
		var one map[string]any
		switch {
		case json.Unmarshal(text, &answer) == nil && answer.Flavors != nil:
			entries = answer.Flavors
		case json.Unmarshal(text, &one) == nil && one["name"] != nil:
			entries = []map[string]any{one}
		default:
			return nil, errors.New("not what openstack flavor list --long -f json prints, or flavor show")
		}
	}
	if len(entries) > maxFlavors {
		return nil, fmt.Errorf("%d flavors: at most %d", len(entries), maxFlavors)
	}
	list := make([]Flavor, 0, len(entries))
	for i, e := range entries {
		f, err := readFlavor(e)
		if err != nil {
			return nil, fmt.Errorf("flavor %d: %w", i+1, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// readFlavor reads one entry, whose keys the client and the API write differently.
func readFlavor(e map[string]any) (Flavor, error) {
	get := func(names ...string) any {
		for _, n := range names {
			if v, ok := e[n]; ok {
				return v
			}
		}
		return nil
	}
	f := Flavor{Specs: map[string]string{}}
	var ok bool
	if f.Name, ok = get("Name", "name").(string); !ok || f.Name == "" || len(f.Name) > 255 {
		return f, errors.New("it has no name")
	}
	vcpus, err1 := number(get("VCPUs", "vcpus"))
	ram, err2 := number(get("RAM", "ram"))
	if err := errors.Join(err1, err2); err != nil {
		return f, fmt.Errorf("%.80q: vCPUs or RAM are missing or no numbers: ask with --long", f.Name)
	}
	f.VCPUs, f.RAMMiB = int(vcpus), ram
	switch specs := get("Properties", "properties", "extra_specs").(type) {
	case nil:
	case map[string]any:
		for k, v := range specs {
			f.Specs[k] = fmt.Sprint(v)
		}
	case string: // before 5.0 of the client: hw:cpu_policy='dedicated', hw:numa_nodes='2'
		readProperties(specs, f.Specs)
	default:
		return f, fmt.Errorf("%.80q: properties of no kind that is known", f.Name)
	}
	return f, nil
}

// number parses a whole number of at most 2³¹, which may be text.
func number(v any) (uint64, error) {
	switch n := v.(type) {
	case float64:
		if n >= 0 && n <= 1<<31 && n == float64(uint64(n)) {
			return uint64(n), nil
		}
	case string:
		if u, err := strconv.ParseUint(n, 10, 31); err == nil {
			return u, nil
		}
	}
	return 0, errors.New("no number")
}

// readProperties parses KEY='VALUE', KEY='VALUE' into m.
func readProperties(text string, m map[string]string) {
	for text != "" {
		key, rest, ok := strings.Cut(text, "='")
		if !ok {
			return
		}
		value, rest, ok := strings.Cut(rest, "'")
		if !ok {
			return
		}
		m[strings.TrimSpace(key)] = value
		text = strings.TrimLeft(rest, ", ")
	}
}
