/*
 * The administrator's arguments in plugstack.conf, besides the defaults of options:
 *
 *   nearmetal=FILE      the program (default: below the prefix of the build)
 *   state=DIR           root's directory for jobs (default /run/nearmetal-slurm)
 *   boot_timeout=S      how long VMs may take to be ready (default 300)
 *   region_gres=NAME    the GRES that counts bytes of regions: a region needs it
 *   ports=LOW-HIGH      that the hosts of a job listen on for each other (default 61000-65535)
 *   sysroot=DIR         below it are sys, dev, run and var, instead of this host's, for tests
 *   accel=auto|kvm|tcg  how VMs run; kvm: a host without KVM is at fault
 *   isolation=auto|standard|strict  the least that VMs are fenced in (docs/security.md)
 *   vm_backend=qemu     the only one that can hold a job's VMs; with another none starts (docs/libvirt.md)
 *   root_writes=yes     the VMs of root's jobs may write to what is shared, as root
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

/* Read the arguments; the strings stay those of av. Unknown ones are said in the log. */
void nm_settings_read(struct nm_settings *s, int ac, char **av);

#endif /* NM_SETTINGS_H_ */
