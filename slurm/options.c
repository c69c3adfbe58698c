#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "options.h"

struct nm_values nm_options;
char nm_options_mistake[NM_MESSAGE_MAX];

/* Numbers of the options that are not keys. */
enum { NO_VM = NM_KEYS, TRAFFIC };

/* has_arg of spank_option: none, required, or optional. */
enum { NO_ARGUMENT, ARGUMENT, MAY_HAVE_ARGUMENT };

static int option_given(int val, const char *optarg, int remote);

static struct spank_option table[] = {
	{ "vm", "SPEC|FILE",
	  "[nearmetal] run the job in virtual machines. SPEC is KEY=VALUE,... with the keys vms, vcpus, memory, root, "
	  "vf, "
	  "region, policy, pages, keep; FILE is a cluster file.",
	  MAY_HAVE_ARGUMENT, NM_VM, option_given },
	{ "vms-per-node", "N", "[nearmetal] VMs on each node (default 1)", ARGUMENT, NM_VMS, option_given },
	{ "vm-vcpus", "N", "[nearmetal] vCPUs of each VM (default the job's CPUs, shared out)", ARGUMENT, NM_VCPUS,
	  option_given },
	{ "vm-memory", "SIZE", "[nearmetal] memory of each VM (default the job's memory, shared out)", ARGUMENT,
	  NM_MEMORY, option_given },
	{ "vm-root", "host|DIR", "[nearmetal] root file system of the VMs (default the host's)", ARGUMENT, NM_ROOT,
	  option_given },
	{ "vm-vf", "[TYPE:]N", "[nearmetal] virtual functions of each node for its VMs", MAY_HAVE_ARGUMENT, NM_VF,
	  option_given },
	{ "vm-region", "SIZE", "[nearmetal] memory that the VMs of a node share, a power of two; 0 for none", ARGUMENT,
	  NM_REGION, option_given },
	{ "vm-policy", "POLICY", "[nearmetal] placement of the VMs: auto, consolidate or spread", ARGUMENT, NM_POLICY,
	  option_given },
	{ "vm-pages", "SIZE",
	  "[nearmetal] huge pages under the VMs' memory, 2MiB or 1GiB, kept for the job; ordinary for none", ARGUMENT,
	  NM_PAGES, option_given },
	{ "vm-keep", "job|step",
	  "[nearmetal] keep the VMs until the job ends (default), or boot VMs of its own for each step",
	  MAY_HAVE_ARGUMENT, NM_KEEP, option_given },
	{ "vm-traffic", "DIR",
	  "[nearmetal] count what the ranks send to each other, into DIR, which the VMs share and may write to "
	  "(nearmetal traffic DIR shows it)",
	  ARGUMENT, TRAFFIC, option_given },
	{ "no-vm", NULL, "[nearmetal] run this step, or job, on the hosts themselves", NO_ARGUMENT, NO_VM,
	  option_given },
};

#define TABLE_LEN (sizeof(table) / sizeof(*table))

int nm_options_register(spank_t sp)
{
	for (size_t i = 0; i < TABLE_LEN; i++) {
		if (spank_option_register(sp, &table[i]) != ESPANK_SUCCESS) {
			slurm_error("nearmetal: cannot register --%s: does another plugin have an option of that name?",
				    table[i].name);
			return -1;
		}
	}
	return 0;
}

static const struct spank_option *option_of(int val)
{
	for (size_t i = 0; i < TABLE_LEN; i++)
		if (table[i].val == val)
			return &table[i];
	return NULL;
}

/*
 * A relative path of --vm or NEARMETAL_VM reaches the job's hosts unchanged; its absolute form is passed in the
 * environment. A slurmstepd, which runs as root, does not resolve paths.
 */
#define FILE_VARIABLE "NEARMETAL_VM_FILE"

/* The origin of a relative path, in a slurmstepd; NM_UNSET: there is none. */
static enum nm_origin relative_file;

/* The argument of --vm: a relative path is made absolute where the command was typed. */
static int vm_given(const char *arg, int remote, enum nm_origin from, char *why)
{
	char resolved[PATH_MAX];

	if (arg[0] != '/' && !strchr(arg, '=')) {
		if (remote) {
			relative_file = from;
			return 0;
		}
		if (!realpath(arg, resolved)) {
			snprintf(why, NM_MESSAGE_MAX,
				 "\"%.200s\" is neither KEY=VALUE,... nor a cluster file that can be found", arg);
			return -1;
		}
		if (setenv(FILE_VARIABLE, resolved, 1)) {
			snprintf(why, NM_MESSAGE_MAX, "%s", strerror(errno));
			return -1;
		}
		arg = resolved;
	}
	return nm_values_spec(&nm_options, arg, from, why);
}

/*
 * The directory for message counts: the variable from which the provider reads it (fabric/proto/traffic.h) reaches
 * the ranks in their environment. Therefore it is set where the option was typed.
 */
#define TRAFFIC_VARIABLE "NEARMETAL_TRAFFIC"
#define TRAFFIC_MAX	 512 /* the provider's limit, including the final zero byte */

static bool traffic_typed;

static int traffic_given(const char *arg, int remote, enum nm_origin from, char *why)
{
	char dir[PATH_MAX], path[NM_VALUE_MAX];

	if (remote)
		return 0;
	if (from < NM_FROM_OPTION && (traffic_typed || getenv(TRAFFIC_VARIABLE)))
		return 0;
	if (!*arg) {
		snprintf(why, NM_MESSAGE_MAX, "write a directory");
		return -1;
	}
	if (*arg != '/' && !getcwd(dir, sizeof(dir))) {
		snprintf(why, NM_MESSAGE_MAX, "the working directory: %s", strerror(errno));
		return -1;
	}
	if ((size_t) snprintf(path, sizeof(path), "%s%s%s", *arg == '/' ? "" : dir, *arg == '/' ? "" : "/", arg) >=
	    TRAFFIC_MAX) {
		snprintf(why, NM_MESSAGE_MAX, "the directory's name has %d bytes or more", TRAFFIC_MAX);
		return -1;
	}
	if (setenv(TRAFFIC_VARIABLE, path, 1)) {
		snprintf(why, NM_MESSAGE_MAX, "%s", strerror(errno));
		return -1;
	}
	traffic_typed |= from == NM_FROM_OPTION;
	return 0;
}

static int set(int val, const char *arg, int remote, enum nm_origin from, enum nm_origin spec, char *why)
{
	switch (val) {
	case NO_VM: return nm_values_set(&nm_options, NM_VM, "0", from, why);
	case NM_VM:
		if (nm_values_set(&nm_options, NM_VM, "1", from, why))
			return -1;
		return arg && *arg ? vm_given(arg, remote, spec, why) : 0;
	case TRAFFIC: return traffic_given(arg ? arg : "", remote, from, why);
	case NM_VF: return nm_values_set(&nm_options, NM_VF, arg && *arg ? arg : "1", from, why);
	case NM_KEEP: return nm_values_set(&nm_options, NM_KEEP, arg && *arg ? arg : "job", from, why);
	default: return nm_values_set(&nm_options, (enum nm_key) val, arg ? arg : "", from, why);
	}
}

/* Slurm may call this twice for one option; the result must be the same. */
static int option_given(int val, const char *arg, int remote)
{
	static bool vm_said, no_vm_said;
	char why[NM_MESSAGE_MAX];

	/* The value that sbatch and salloc pass to an inner srun for an option without an argument. */
	if (arg && !strcmp(arg, "(null)"))
		arg = NULL;

	vm_said |= val == NM_VM;
	no_vm_said |= val == NO_VM;
	/* A step inherits its job's --vm, and may add --no-vm. */
	if (vm_said && no_vm_said) {
		if (!remote && !getenv("SLURM_JOB_ID") && !*nm_options_mistake)
			snprintf(nm_options_mistake, NM_MESSAGE_MAX, "--vm and --no-vm cannot be given together");
		val = NO_VM;
	}
	if (set(val, arg, remote, NM_FROM_OPTION, NM_FROM_SPEC, why) && !*nm_options_mistake)
		snprintf(nm_options_mistake, NM_MESSAGE_MAX, "--%s: %.440s", option_of(val)->name, why);
	return 0; /* init_post_opt reports mistakes, in one line */
}

/* The name NEARMETAL_VM_MEMORY for vm-memory; in lower case for plugstack.conf. */
static void variable(const char *option, bool upper, char out[64])
{
	size_t n = 0;

	if (upper)
		n = (size_t) sprintf(out, "NEARMETAL_");
	for (; *option && n < 62; option++)
		out[n++] = *option == '-' ? '_' : upper ? (char) toupper((unsigned char) *option) : *option;
	out[n] = 0;
}

/* Set one default; options that are on or off accept the text 0 or 1. */
static int set_default(const struct spank_option *o, const char *name, const char *text, int remote,
		       enum nm_origin from)
{
	char why[NM_MESSAGE_MAX];
	int val = o->val;

	if (val == NM_VM || val == NO_VM) {
		if (!strcmp(text, "0") || (val == NO_VM && strcmp(text, "1"))) {
			if (val == NM_VM)
				return 0;
			if (!strcmp(text, "0"))
				return 0;
			snprintf(nm_options_mistake, NM_MESSAGE_MAX, "%s: write 0 or 1", name);
			return -1;
		}
		if (nm_options.origin[NM_VM] > from)
			return 0; /* a value that was typed remains, with its mistakes */
		if (!strcmp(text, "1"))
			text = "";
	}
	if (set(val, text, remote, from, from, why)) {
		snprintf(nm_options_mistake, NM_MESSAGE_MAX, "%s: %.440s", name, why);
		return -1;
	}
	return 0;
}

int nm_options_complete(const char *(*get)(const char *name, void *arg), void *arg, int remote, int ac, char **av)
{
	const char *path;
	char name[64];

	if (*nm_options_mistake)
		return -1;
	for (size_t i = 0; i < TABLE_LEN; i++) {
		const char *text;

		variable(table[i].name, true, name);
		text = get(name, arg);
		if (text && *text && set_default(&table[i], name, text, remote, NM_FROM_ENV))
			return -1;
		variable(table[i].name, false, name);
		for (int a = 0; a < ac; a++) {
			size_t n = strlen(name);

			if (!strncmp(av[a], name, n) && av[a][n] == '=' &&
			    set_default(&table[i], name, av[a] + n + 1, remote, NM_FROM_SITE))
				return -1;
		}
	}
	path = relative_file != NM_UNSET ? get(FILE_VARIABLE, arg) : NULL;
	return path ? nm_values_set(&nm_options, NM_FILE, path, relative_file, nm_options_mistake) : 0;
}

const char *nm_options_idle(void)
{
	for (size_t i = 0; i < TABLE_LEN; i++)
		if (table[i].val < NM_KEYS && table[i].val != NM_VM &&
		    nm_options.origin[table[i].val] == NM_FROM_OPTION)
			return table[i].name;
	return traffic_typed ? option_of(TRAFFIC)->name : NULL;
}
