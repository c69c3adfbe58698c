package check

var usernsRow = Row{
	ID: "limits.userns", Group: Limits, Title: "namespaces for users",
	Reads:  "/proc/sys/user/max_user_namespaces, kernel/unprivileged_userns_clone, kernel/apparmor_restrict_unprivileged_userns",
	Wants:  "users may make namespaces",
	Why:    "nearmetal takes the host's /proc, /sys, /run and other users' files in /tmp out of what VMs see by a mount namespace, and with isolation: strict it puts QEMU into namespaces, which a user gets only with one for users.",
	Source: "docs/security.md",
	Costs:  "VMs that ordinary users start see all of that; isolation: standard and strict are refused",
	Fix:    "sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1; with AppArmor a profile with 'userns,' for nearmetal, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
	Needs:  Other, Profiles: onVMHosts,
	look: func(f *facts) finding {
		most, ok := f.number("/proc/sys/user/max_user_namespaces")
		if !ok {
			return found(Unknown, "no /proc/sys/user/max_user_namespaces in the tree")
		}
		if most == 0 {
			return found(Warn, "user.max_user_namespaces is 0")
		}
		if n, ok := f.number("/proc/sys/kernel/unprivileged_userns_clone"); ok && n == 0 {
			return found(Warn, "kernel.unprivileged_userns_clone is 0")
		}
		if n, ok := f.number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); ok && n != 0 {
			return found(Warn, "AppArmor lets only programs with a profile for it")
		}
		return found(OK, "users may make %d", most)
	},
}
