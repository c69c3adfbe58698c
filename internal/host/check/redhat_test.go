package check

import (
	"context"
	"testing"

	"nearmetal/test/hosttree"
)

// What Red Hat's hosts have by default, and what keeps VMs from starting there.
func TestRedHatRows(t *testing.T) {
	for _, tt := range []struct {
		tree, id string
		want     Status
	}{
		{"", "power.tuned", NotApplicable},
		{"etc/tuned/active_profile = balanced", "power.tuned", NotApplicable},
		{"etc/tuned/active_profile = balanced\nproc/9/comm = tuned", "power.tuned", Warn},
		{"etc/tuned/active_profile = virtual-guest\nproc/9/comm = tuned", "power.tuned", Warn},
		{"etc/tuned/active_profile = virtual-host\nproc/9/comm = tuned", "power.tuned", OK},
		{"etc/tuned/active_profile = own hpc-compute\nproc/9/comm = tuned", "power.tuned", OK},
		{"proc/self/attr/current = unconfined", "limits.selinux", NotApplicable},
		{"sys/fs/selinux/enforce = 0\nproc/self/attr/current = u:r:user_t:s0", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = system_u:system_r:unconfined_service_t:s0", "limits.selinux", OK},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = user_u:user_r:user_t:s0", "limits.selinux", Warn},
		{"sys/fs/selinux/enforce = 1\nproc/self/attr/current = strange", "limits.selinux", Unknown},
		{"sys/fs/selinux/enforce = 1", "limits.selinux", Unknown},
	} {
		dir := hosttree.Dir(t)
		if err := hosttree.Add(dir, "proc/version = x\nsys/x = y\n"+tt.tree); err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), Options{Root: dir, Only: []string{tt.id}, Command: answering})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 1 || r.Rows[0].Status != tt.want {
			t.Errorf("%q: %+v, not %v", tt.tree, r.Rows, tt.want)
		}
	}
}
