package backend

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"nearmetal/internal/spec"
)

// Unused returns the settings of a cluster file that the VMs would not have on this backend, if the file also serves
// another one, one line each. Fit rejects them on a known machine; a plan for a described one reports them. s has its
// defaults filled in.
func Unused(s *spec.Cluster) []string {
	name := Scheme(s.Backend)
	if name != "qemu" && name != "libvirt" {
		return nil // Fit rejects unsupported settings of other backends also for plans
	}
	var list []string
	if keys := setKeys(s.VSphere); len(keys) > 0 {
		list = append(list, fmt.Sprintf("not used by backend %s: vsphere: {%s}", name, strings.Join(keys, ", ")))
	}
	if s.Root == spec.RootBackend {
		list = append(list, fmt.Sprintf("backend %s has no disks of its own: to start these VMs, write root: host, or a directory", name))
	}
	for i := range s.VMs {
		if slices.ContainsFunc(s.VMs[i].Devices, func(d spec.Device) bool { return d.Dynamic }) {
			list = append(list, fmt.Sprintf("backend %s cannot %s: to start %s, leave dynamic out", name, CapDynamic, s.VMs[i].Name))
		}
	}
	return list
}

// setKeys returns the keys of vsphere that differ from their defaults.
func setKeys(v spec.VSphere) []string {
	var plain spec.Cluster
	spec.Defaults(&plain)
	var keys []string
	have, unset := reflect.ValueOf(v), reflect.ValueOf(plain.VSphere)
	for i := 0; i < have.NumField(); i++ {
		f := have.Field(i)
		if f.Kind() == reflect.Slice && f.Len() == 0 || reflect.DeepEqual(f.Interface(), unset.Field(i).Interface()) {
			continue
		}
		keys = append(keys, have.Type().Field(i).Tag.Get("yaml"))
	}
	return keys
}
