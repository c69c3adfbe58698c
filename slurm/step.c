/*
 * A step of a job: its slurmstepd checks as root whether the job has VMs here, then each task becomes the wrapper
 * that runs it in one of them. A failed boot of the VMs is reported in task_init, which fails the step without
 * draining the host.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contexts.h"
#include "options.h"
#include "request.h"
#include "settings.h"
#include "state.h"

/* Prefix of a line of the result that is a warning for the user (cmd/nearmetal/slurmboot.go). */
#define WARNING "! "

/* Results of post_opt, for the tasks that are forked later. */
static struct {
	struct nm_settings settings;
	struct nm_job job;
	enum { ON_HOST, IN_VM, FAILED } where;
	bool own; /* the step has VMs of its own */
	bool batch;
	bool first; /* it is the first of the job's steps */
	char cluster[64];
	char request[NM_REQUEST_MAX]; /* for the step's own VMs */
	char devices[NM_DEVICES_MAX]; /* VFs available to them */
	char region[NM_REGION_MAX];   /* their limit of the GRES that counts regions */
	char hosts[NM_HOSTS_MAX];     /* the hosts and the secret that join them over the nodes */
	char text[NM_RESULT_MAX];     /* FAILED: the reason; else NAME=VALUE lines */
} step;

static const char *job_variable(const char *name, void *arg)
{
	static char value[NM_VALUE_MAX];

	if (spank_getenv((spank_t) arg, name, value, sizeof(value)) != ESPANK_SUCCESS)
		return NULL;
	return value;
}

static void fail(const char *text)
{
	step.where = FAILED;
	snprintf(step.text, sizeof(step.text), "%s", text);
}

/* The step boots VMs of its own. Its values override the job's. */
static void own_vms(const char *job_request)
{
	char message[NM_MESSAGE_MAX];
	struct nm_values v;

	if (nm_request_read(job_request, &v, message)) {
		fail(message);
		return;
	}
	for (int k = 0; k < NM_KEYS; k++)
		if (nm_options.origin[k] == NM_UNSET && v.origin[k] != NM_UNSET) {
			strcpy(nm_options.text[k], v.text[k]);
			nm_options.origin[k] = NM_FROM_SITE;
		}
	if (nm_request_write(&nm_options, step.request)) {
		fail("the options of the VMs are too long together: write a cluster file");
		return;
	}
	/* Without the job's share of the region's GRES, the size of the step's region would be unlimited. */
	if (nm_state_read_file(step.settings.state, &step.job, NM_FILE_DEVICES, step.devices, NM_DEVICES_MAX) < 0 ||
	    nm_state_read_file(step.settings.state, &step.job, NM_FILE_REGION, step.region, NM_REGION_MAX) < 0 ||
	    nm_state_read_file(step.settings.state, &step.job, NM_FILE_HOSTS, step.hosts, NM_HOSTS_MAX) < 0) {
		fail("what root keeps of the job cannot be read");
		return;
	}
	for (char *p = step.devices; *p; p++)
		if (*p == '\n')
			*p = ' ';
	step.where = IN_VM;
	step.own = true;
}

/* Read the result of the prolog and the boot; own: the step gets VMs of its own, unless an earlier boot failed. */
static void read_result(bool own)
{
	static char text[NM_RESULT_MAX];
	char *rest = text, *line;
	bool ready;
	ssize_t n = nm_state_read_file(step.settings.state, &step.job, NM_FILE_RESULT, text, NM_RESULT_MAX);

	if (n < 0) {
		fail("what root keeps of the job cannot be read");
		return;
	}
	if (!n) {
		/* No extern step (PrologFlags lacks Contain) has booted VMs; therefore each step does. */
		own_vms(step.job.request);
		return;
	}
	line = strsep(&rest, "\n");
	ready = !strncmp(line, "ready ", 6) && strlen(line + 6) < sizeof(step.cluster);
	if (ready && own) {
		own_vms(step.job.request);
	} else if (ready) {
		strcpy(step.cluster, line + 6);
		step.where = IN_VM;
		snprintf(step.text, sizeof(step.text), "%s", rest ? rest : "");
	} else {
		fail(rest ? rest : "the VMs did not boot");
	}
}

/*
 * Slurm's PMIx server, which starts later in this slurmstepd, names the node as gethostname returns it (with a
 * domain, if it has one), but names the ranks' node as Slurm does. PMIx's gds hash, which ranks in a VM have to use,
 * finds the node's values only under the second name. Open MPI 5 then does not know how many ranks its node has, and
 * ranks from the third on fail in MPI_Init. Therefore the server gets Slurm's name (PMIx 4 and 5:
 * src/runtime/pmix_init.c).
 */
static void name_node(void)
{
	if (step.where == IN_VM)
		setenv("PMIX_HOSTNAME", step.job.node, 1);
}

/*
 * With the tree algorithm, which Slurm's PMIx uses for fences without data, a fence waits only for the ranks of its
 * own node if the step has fewer nodes than TreeWidth (Slurm 20.02 to 26.05: src/common/reverse_tree.c builds no tree
 * then). Open MPI over UCX then waits in MPI_Finalize for ranks that have exited. The ring algorithm waits for all
 * nodes. A value in the user's environment is kept.
 */
static void fence_all_nodes(spank_t sp)
{
	if (step.where == IN_VM)
		spank_setenv(sp, "SLURM_PMIX_FENCE", "ring", 0);
}

int nm_step_post_opt(spank_t sp, int ac, char **av)
{
	uint32_t id = 0, stepid = 0;
	int have;

	if (spank_get_item(sp, S_JOB_ID, &id) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_JOB_STEPID, &stepid) != ESPANK_SUCCESS)
		return 0;
	nm_settings_read(&step.settings, ac, av);
	step.first = !stepid;
	step.batch = stepid == SLURM_BATCH_SCRIPT || stepid == SLURM_INTERACTIVE_STEP;
	have = nm_state_read(step.settings.state, id, &step.job);
	if (!have && nm_options.origin[NM_VM] == NM_UNSET)
		return 0; /* no VMs: nothing else to do */
	if (have < 0) {
		fail("root's own directory for the job's VMs cannot be read");
		slurm_error("nearmetal: request of job %u: %s", id, strerror(errno));
		return 0;
	}
	if (step.batch) {
		if (have)
			read_result(false);
		return 0;
	}
	if (nm_options_complete(job_variable, sp, 1, 0, NULL)) {
		fail(nm_options_mistake);
		return 0;
	}
	if (nm_options.origin[NM_VM] != NM_UNSET && !nm_values_wanted(&nm_options))
		return 0;
	if (!have) {
		if (nm_values_wanted(&nm_options))
			fail("this job has no VMs: give --vm to the sbatch or salloc that makes the job, with "
			     "--vm-keep=step if its "
			     "steps are to have VMs of their own");
		return 0;
	}
	read_result(!strcmp(nm_options.text[NM_KEEP], "step"));
	name_node();
	fence_all_nodes(sp);
	if (step.own && nm_state_run_here(step.settings.state, &step.job))
		fail("the folder of the job's VMs cannot be mounted");
	return 0;
}

/* Put a variable into the step's environment. A failure fails the step, because the variable may be a limit. */
static void put(spank_t sp, const char *name, const char *value)
{
	char why[128];

	if (spank_setenv(sp, name, value, 1) == ESPANK_SUCCESS)
		return;
	snprintf(why, sizeof(why), "the variable %.60s cannot be set", name);
	fail(why);
}

/* Set the NAME=VALUE lines of the result, for launchers in a batch script. */
static void set_lines(spank_t sp, char *text)
{
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		char *value = strchr(line, '=');

		if (!value || !strncmp(line, WARNING, strlen(WARNING)))
			continue;
		*value++ = 0;
		if (spank_setenv(sp, line, value, 1) != ESPANK_SUCCESS)
			slurm_error("nearmetal: the variable %.60s cannot be set", line);
	}
}

int nm_step_user_init(spank_t sp, int ac, char **av)
{
	char run[512], mark[1024];

	(void) ac;
	(void) av;
	/* The variables that srun stored in the job for the prologs are also in the environment of its steps. */
	spank_unsetenv(sp, "SLURM_SPANK_" NM_SECRET_NAME);
	if (step.where != IN_VM)
		return 0;
	if (nm_state_run_dir(step.settings.state, &step.job, run, sizeof(run))) {
		fail("the path of state= in plugstack.conf is too long");
		return 0;
	}
	put(sp, "NEARMETAL_RUNTIME_DIR", run);
	if (step.own) {
		char *cores = NULL;
		uint64_t memory = 0;
		char text[32];

		if (step.batch)
			return 0;
		if (strlen(step.hosts) > NM_SECRET_LEN) {
			put(sp, "NEARMETAL_SLURM_HOSTS", step.hosts + NM_SECRET_LEN + 1);
			if (step.settings.ports)
				put(sp, "NEARMETAL_SLURM_PORTS", step.settings.ports);
		}
		if (*step.region)
			put(sp, "NEARMETAL_SLURM_REGION", step.region);
		put(sp, "NEARMETAL_SLURM_ACCEL", step.settings.accel);
		put(sp, "NEARMETAL_SLURM_ISOLATION", step.settings.isolation);
		put(sp, "NEARMETAL_SLURM_ROOT_WRITES", step.settings.root_writes ? "yes" : "no");
		snprintf(text, sizeof(text), "%us", step.settings.boot_timeout);
		put(sp, "NEARMETAL_SLURM_BOOT_TIMEOUT", text);
		if (*step.devices)
			put(sp, "NEARMETAL_SLURM_DEVICES", step.devices);
		snprintf(mark, sizeof(mark), "%.700s/%u.%s", step.settings.state, step.job.id, step.job.node);
		put(sp, "NEARMETAL_SLURM_JOB", mark);
		put(sp, "NEARMETAL_SLURM_REQUEST", step.request);
		put(sp, "NEARMETAL_SLURM_DIR", step.job.dir);
		if (spank_get_item(sp, S_STEP_ALLOC_CORES, &cores) == ESPANK_SUCCESS && cores)
			put(sp, "NEARMETAL_SLURM_CORES", cores);
		if (spank_get_item(sp, S_STEP_ALLOC_MEM, &memory) == ESPANK_SUCCESS) {
			snprintf(text, sizeof(text), "%lluMiB", (unsigned long long) memory);
			put(sp, "NEARMETAL_SLURM_MEMORY", text);
		}
		return 0;
	}
	put(sp, "NEARMETAL_CLUSTER", step.cluster);
	if (step.batch)
		set_lines(sp, step.text);
	return 0;
}

static bool first_task(spank_t sp)
{
	int task = 0;

	return spank_get_item(sp, S_TASK_ID, &task) == ESPANK_SUCCESS && !task;
}

/* Report problems that do not prevent the VMs from running, once per job on each host. */
static void raise_warnings(void)
{
	for (char *p = step.text; p && *p; p = (p = strchr(p, '\n')) ? p + 1 : NULL)
		if (!strncmp(p, WARNING, strlen(WARNING)))
			slurm_spank_log("nearmetal: %s: warning: %.*s", step.job.node,
					(int) strcspn(p, "\n") - (int) strlen(WARNING), p + strlen(WARNING));
}

/* Make program, an absolute path, run before the task's command or instead of it. */
static int run_instead(spank_t sp, char *program)
{
	char **argv = NULL;
	int argc = 0;

	if (spank_prepend_task_argv) {
		const char *before[] = { program };

		return spank_prepend_task_argv(sp, 1, before) == ESPANK_SUCCESS ? 0 : -1;
	}
	/* Older versions: program replaces the command, whose name is in a variable. */
	if (spank_get_item(sp, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 ||
	    spank_setenv(sp, "NEARMETAL_SLURM_COMMAND", argv[0], 1) != ESPANK_SUCCESS)
		return -1;
	argv[0] = program;
	return 0;
}

/*
 * Report why the VMs did not boot, once per host, and fail the task with a program that fails, because Slurm prints
 * two lines for each task whose plugin fails.
 */
static int raise_failure(spank_t sp)
{
	static char fails[] = "/bin/false";
	bool first = true;

	if (!first_task(sp))
		return run_instead(sp, fails);
	for (char *rest = step.text, *line; (line = strsep(&rest, "\n"));) {
		if (!*line)
			continue;
		if (first)
			slurm_spank_log("nearmetal: %s: %s", step.job.node, line);
		else
			slurm_spank_log("%s", line);
		first = false;
	}
	return run_instead(sp, fails);
}

/*
 * Pass the secret that joins the step's own VMs over the nodes, in a pipe that the wrapper inherits and reads at its
 * start. A variable contains the number of its descriptor.
 */
static int hand_secret(spank_t sp)
{
	char text[16];
	int fds[2];
	bool ok;

	if (!step.own || strlen(step.hosts) <= NM_SECRET_LEN)
		return 0;
	if (pipe(fds))
		return -1;
	ok = write(fds[1], step.hosts, NM_SECRET_LEN) == NM_SECRET_LEN;
	close(fds[1]);
	explicit_bzero(step.hosts, sizeof(step.hosts));
	snprintf(text, sizeof(text), "%d", fds[0]);
	return ok && spank_setenv(sp, "NEARMETAL_SLURM_SECRET_FD", text, 1) == ESPANK_SUCCESS ? 0 : -1;
}

int nm_step_task_init(spank_t sp, int ac, char **av)
{
	static char wrapper[1024];
	const char *slash;

	(void) ac;
	(void) av;
	if (step.where == FAILED)
		return step.batch ? 0 : raise_failure(sp);
	if (step.where == ON_HOST || step.batch)
		return 0;
	if (step.first && first_task(sp))
		raise_warnings();
	slash = strrchr(step.settings.nearmetal, '/');
	snprintf(wrapper, sizeof(wrapper), "%.*s/nearmetal-task", slash ? (int) (slash - step.settings.nearmetal) : 0,
		 step.settings.nearmetal);
	if (access(wrapper, X_OK)) {
		slurm_spank_log("nearmetal: %s: %s: %s", step.job.node, wrapper, strerror(errno));
		return -1;
	}
	if (hand_secret(sp)) {
		slurm_spank_log("nearmetal: %s: the secret of the step's VMs: %s", step.job.node, strerror(errno));
		return -1;
	}
	return run_instead(sp, wrapper);
}
