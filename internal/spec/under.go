package spec

import "reflect"

// Under fills in c from d: values that c leaves unset are d's. The variables of both are joined. A list in c is kept
// unchanged; if d has one group of VMs, groups of c inherit its size and devices where unset. Name, version and
// shares are c's own.
func Under(c, d *Cluster) {
	d = d.Clone()
	if c.Kernel != "" {
		d.KernelModules = "" // they belong to d's kernel
	}
	name, version, shares, groups := c.Name, c.Version, c.Shares, c.VMs
	under(reflect.ValueOf(c).Elem(), reflect.ValueOf(d).Elem())
	c.Name, c.Version, c.Shares = name, version, shares
	for i := range groups {
		if len(d.VMs) == 1 {
			g := d.VMs[0]
			g.Name, g.Names, g.Count = "", nil, 0
			under(reflect.ValueOf(&c.VMs[i]).Elem(), reflect.ValueOf(g))
		}
	}
}

func under(v, d reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			under(v.Field(i), d.Field(i))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		for _, k := range d.MapKeys() {
			if !v.MapIndex(k).IsValid() {
				v.SetMapIndex(k, d.MapIndex(k))
			}
		}
	case v.IsZero():
		v.Set(d)
	}
}
