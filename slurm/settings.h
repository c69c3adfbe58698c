/*
 * The administrator's arguments in plugstack.conf, in addition to the defaults of options:
 *
 *   nearmetal=FILE      the program (default: below the prefix of the build)
 *   state=DIR           root's directory for jobs (default /run/nearmetal-slurm)
 *   boot_timeout=S      the timeout for VMs to become ready (default 300)
 *   region_gres=NAME    the GRES that counts bytes of regions; jobs with a region need it
 *   ports=LOW-HIGH      the ports on which the hosts of a job listen for each other (default 61000-65535)
 *   sysroot=DIR         the parent of sys, dev, run and var, instead of /, for tests
 *   accel=auto|kvm|tcg  how VMs run; kvm: a host without KVM is faulty
 *   isolation=auto|standard|strict  the minimum isolation of VMs (docs/security.md)
 *   vm_backend=qemu     the only backend for a job's VMs; any other prevents all VMs from starting (docs/libvirt.md)
 *   root_writes=yes     the VMs of root's jobs may write to shares, as root
 */
#ifndef NM_SETTINGS_H_
#define NM_SETTINGS_H_

struct nm_settings {
	const char *nearmetal;
	const char *state;
	const char *region_gres; /* NULL: regions are not counted */
	const char *ports;	 /* NULL: nearmetal's own default */
	const char *sysroot;	 /* NULL: this host */
	const char *accel;
	const char *isolation;
	const char *backend;
	int root_writes;
	unsigned int boot_timeout; /* seconds */
};

/* Read the arguments; the strings still belong to av. Unknown arguments are reported in the log. */
void nm_settings_read(struct nm_settings *s, int ac, char **av);

#endif /* NM_SETTINGS_H_ */
