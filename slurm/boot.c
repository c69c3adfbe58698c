#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "boot.h"
#include "cgroup.h"
#include "child.h"
#include "node.h"

/* Exit status of nearmetal slurm-boot and slurm-host if the host is at fault (cmd/nearmetal/slurmboot.go). */
#define HOST_FAULT 3

/* Seconds added to nearmetal's own timeout, because its error message has more details. */
#define SLACK 30

#define GROUPS_MAX 1024

/* The words of a command, in one buffer. */
struct words {
	bool full; /* a word did not fit; the command is then not run */
	char text[96 << 10];
	size_t used;
	char *list[128]; /* up to 64 VFs (values.c) */
	size_t n;
};

static void add(struct words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *w, const char *format, ...)
{
	size_t room = sizeof(w->text) - w->used;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(w->text + w->used, room, format, args);
	va_end(args);
	if (len < 0 || (size_t) len >= room || w->n + 1 >= sizeof(w->list) / sizeof(*w->list)) {
		w->full = true;
		return;
	}
	w->list[w->n++] = w->text + w->used;
	w->list[w->n] = NULL;
	w->used += (size_t) len + 1;
}

static bool adopted_outlives(spank_t sp)
{
	char *major = NULL, *minor = NULL;
	int y, m;

	if (spank_get_item(sp, S_SLURM_VERSION_MAJOR, &major) != ESPANK_SUCCESS ||
	    spank_get_item(sp, S_SLURM_VERSION_MINOR, &minor) != ESPANK_SUCCESS || !major || !minor)
		return false;
	y = atoi(major);
	m = atoi(minor);
	/* Before 24.05 the extern step receives SIGTERM together with the application. */
	return y > 24 || (y == 24 && m >= 5);
}

/* The first line of text, without its newline. */
static void first_line(const char *text, char *out, size_t size)
{
	size_t n = strcspn(text, "\n");

	snprintf(out, size, "%.*s", (int) (n < size ? n : size - 1), text);
}

#define CGROUP_TEXT_MAX 16384

/* Read /proc/PID/cgroup; text is "" if it cannot be read. */
static void read_cgroup(pid_t pid, char text[CGROUP_TEXT_MAX])
{
	char path[64];
	ssize_t n;
	int fd;

	*text = 0;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, CGROUP_TEXT_MAX - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
}

/*
 * Slurm's own function that moves processes to the cgroups of this step: from src/interfaces/cgroup.h, linked into
 * slurmstepd. From 25.05 on the extern step has no process whose cgroups could be used instead.
 */
extern int cgroup_g_step_addto(int controller, pid_t *pids, int npids) __attribute__((weak));

/* The last of the controllers, which Slurm numbers from 0: freezer, cpuset, memory, devices, cpuacct. */
#define LAST_CONTROLLER 4

static void place(pid_t pid)
{
	/* Fails for controllers that this site does not use. */
	for (int controller = 0; controller <= LAST_CONTROLLER; controller++)
		cgroup_g_step_addto(controller, &pid, 1);
}

/*
 * Whether root's own check also finds this host at fault. Failures of the user's process prove nothing: the user may
 * end it or its children, trace it, or lack the right to /dev/kvm, and a job's memory limit kills any process.
 */
static bool host_at_fault(const struct nm_settings *s)
{
	/* The root cgroups, outside of the job's memory limit, which applies to slurmstepd and its children. */
	static char root[][512] = { "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/cgroup.procs" };
	char accel[64], out[1024];
	char *argv[] = { (char *) s->nearmetal, "slurm-host", accel, NULL };
	char *envp[] = { "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin", "LANG=C.UTF-8", NULL };
	struct nm_child c = {
		.path = s->nearmetal,
		.argv = argv,
		.envp = envp,
		.timeout = s->boot_timeout,
		.cgroups = root,
		.ncgroups = sizeof(root) / sizeof(*root),
	};
	int status;

	snprintf(accel, sizeof(accel), "--accel=%.40s", s->accel);
	status = nm_child_run(&c, out, sizeof(out));
	if (status < 0 || !WIFEXITED(status))
		return false;
	return WEXITSTATUS(status) == HOST_FAULT || WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126;
}

void nm_boot(spank_t sp, const struct nm_settings *s, const struct nm_job *job, pid_t task, char result[NM_RESULT_MAX])
{
	static char cgroups[NM_CGROUPS_MAX][512];
	static struct words argv, envp;
	static gid_t groups[GROUPS_MAX];
	static char hosts[NM_HOSTS_MAX], cgroup[CGROUP_TEXT_MAX];
	char devices[NM_DEVICES_MAX], region[NM_REGION_MAX], buf[16384], run[512], out[NM_RESULT_MAX - 64], line[256];
	struct passwd pw, *user = NULL;
	int ngroups = GROUPS_MAX, status;
	uint64_t memory = 0;
	char *cores = NULL;
	struct nm_child c = {
		.path = s->nearmetal,
		.argv = argv.list,
		.envp = envp.list,
		.drop = true,
		.uid = job->uid,
		.gid = job->gid,
		.groups = groups,
		.cgroups = cgroups,
		.timeout = s->boot_timeout + SLACK,
	};

	if (getpwuid_r(job->uid, &pw, buf, sizeof(buf), &user) || !user) {
		snprintf(result, NM_RESULT_MAX, "failed host\nuser %u is not known on this host\n",
			 (unsigned int) job->uid);
		return;
	}
	if (nm_state_run_dir(s->state, job, run, sizeof(run))) {
		snprintf(result, NM_RESULT_MAX, "failed host\nthe path of state=%.200s is too long\n", s->state);
		return;
	}
	/* Without the job's share of the region's GRES, the size of its VMs' region would be unlimited. */
	if (nm_state_read_file(s->state, job, NM_FILE_REGION, region, NM_REGION_MAX) < 0 ||
	    nm_state_read_file(s->state, job, NM_FILE_DEVICES, devices, NM_DEVICES_MAX) < 0 ||
	    nm_state_read_file(s->state, job, NM_FILE_HOSTS, hosts, NM_HOSTS_MAX) < 0) {
		snprintf(result, NM_RESULT_MAX, "failed host\nwhat is kept of the job cannot be read: %s\n",
			 strerror(errno));
		return;
	}
	if (getgrouplist(user->pw_name, job->gid, groups, &ngroups) < 0)
		ngroups = GROUPS_MAX;
	c.ngroups = (size_t) ngroups;
	spank_get_item(sp, S_JOB_ALLOC_CORES, &cores);
	spank_get_item(sp, S_JOB_ALLOC_MEM, &memory);
	read_cgroup(task > 1 ? task : getpid(), cgroup);
	if (task > 1)
		c.ncgroups = nm_cgroup_files(cgroup, job->id, adopted_outlives(sp), cgroups, NM_CGROUPS_MAX);
	else if (cgroup_g_step_addto && nm_cgroup_of_job(cgroup, job->id))
		c.place = place;

	memset(&argv, 0, sizeof(argv));
	add(&argv, "%s", s->nearmetal);
	add(&argv, "slurm-boot");
	add(&argv, "--node=%s", job->node);
	add(&argv, "--cores=%s", cores ? cores : "");
	add(&argv, "--memory-limit=%lluMiB", (unsigned long long) memory);
	add(&argv, "--workdir=%s", job->dir);
	add(&argv, "--accel=%.40s", s->accel);
	add(&argv, "--isolation=%.40s", s->isolation);
	if (s->root_writes)
		add(&argv, "--root-writes");
	if (s->ports)
		add(&argv, "--ports=%.40s", s->ports);
	if (*region)
		add(&argv, "--region-limit=%s", region);
	add(&argv, "--boot-timeout=%us", s->boot_timeout);
	for (char *rest = devices, *at; (at = strsep(&rest, "\n"));)
		if (*at)
			add(&argv, "--device=%.40s", at);
	add(&argv, "--");
	add(&argv, "%s", job->request);
	memset(&envp, 0, sizeof(envp));
	add(&envp, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin");
	add(&envp, "HOME=%.400s", user->pw_dir);
	add(&envp, "USER=%.200s", user->pw_name);
	add(&envp, "LOGNAME=%.200s", user->pw_name);
	add(&envp, "LANG=C.UTF-8");
	add(&envp, "NEARMETAL_RUNTIME_DIR=%s", run);
	add(&envp, "NEARMETAL_SLURM_JOB=%s/%u.%s", s->state, job->id, job->node);
	/*
	 * The secret is passed through a pipe, because all programs of the user, and guests, can read an environment
	 * in /proc.
	 */
	if (strlen(hosts) > NM_SECRET_LEN) {
		add(&envp, "NEARMETAL_SLURM_HOSTS=%s", hosts + NM_SECRET_LEN + 1);
		hosts[NM_SECRET_LEN] = 0;
		c.input = hosts;
	}

	if (argv.full || envp.full) {
		snprintf(result, NM_RESULT_MAX, "failed user\nwhat the job has is too long for a command\n");
		return;
	}
	status = nm_child_run(&c, out, sizeof(out));
	if (!status && strlen(out) + 1 == sizeof(out)) {
		/* A truncated variable would mislead a launcher. */
		snprintf(result, NM_RESULT_MAX,
			 "failed user\nthe variables for launchers are longer than %zu bytes: use fewer VMs\n",
			 sizeof(out) - 2);
		return;
	}
	if (!status) {
		first_line(out, line, sizeof(line));
		snprintf(result, NM_RESULT_MAX, "ready %s\n%s", line, strchr(out, '\n') ? strchr(out, '\n') + 1 : "");
		return;
	}
	if (status < 0)
		snprintf(result, NM_RESULT_MAX, "failed user\n%s: %s\n", s->nearmetal, strerror(errno));
	else if (WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126))
		snprintf(result, NM_RESULT_MAX, "failed %s\n%s cannot be run\n", host_at_fault(s) ? "host" : "user",
			 s->nearmetal);
	else
		snprintf(result, NM_RESULT_MAX, "failed %s\n%s",
			 WIFEXITED(status) && WEXITSTATUS(status) == HOST_FAULT && host_at_fault(s) ? "host" : "user",
			 *out ? nm_child_said(out) : "nearmetal slurm-boot was killed\n");
}
