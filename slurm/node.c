#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLURM_BACKWARD_COMPAT /* from 26.05 on a job is named otherwise (slurm.h) */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#include "cgroup.h"
#include "environ.h"
#include "node.h"

/* A list of node names: hostlist_t before Slurm 23.11, hostlist_t * from then on. */
typedef __typeof__(slurm_hostlist_create(NULL)) node_list;

/* How long supervisors may take to end their VMs in order, and the kernel to end killed processes, in ms. */
#define GRACE_MS  5000
#define KILLED_MS 2000

int nm_node_group(uid_t uid, gid_t *gid)
{
	struct passwd pw, *found = NULL;
	char buf[16384];

	if (getpwuid_r(uid, &pw, buf, sizeof(buf), &found) || !found)
		return -1;
	*gid = found->pw_gid;
	return 0;
}

uint64_t nm_node_gres_count(const char *text, const char *name)
{
	size_t n = strlen(name);

	while (text && *text) {
		size_t len = strcspn(text, ",");
		const char *open = memchr(text, '(', len);

		if (len > n && !strncmp(text, name, n) && (text[n] == ':' || text[n] == '(')) {
			if (open && !strncmp(open, "(CNT:", 5))
				return strtoull(open + 5, NULL, 10);
		}
		text += len;
		if (*text == ',')
			text++;
	}
	return 0;
}

/* The index of this host among a job's nodes, or -1. */
static int node_index(const char *nodes, const char *node)
{
	node_list list = slurm_hostlist_create(nodes);
	int i = list ? slurm_hostlist_find(list, node) : -1;

	if (list)
		slurm_hostlist_destroy(list);
	return i;
}

int nm_node_gres(const struct nm_job *job, char gres[NM_GRES_MAX], char message[NM_MESSAGE_MAX])
{
	job_info_msg_t *m = NULL;
	bool fits = true;

	*gres = 0;
	slurm_init(NULL); /* without it the library of 24.11 ends the prolog */
	if (slurm_load_job(&m, job->id, SHOW_DETAIL)) {
		snprintf(message, NM_MESSAGE_MAX, "cannot ask slurmctld for the job's GRES: %.200s",
			 slurm_strerror(errno));
		return -1;
	}
	if (m->record_count) {
		job_info_t *j = &m->job_array[0];
		int i = j->nodes ? node_index(j->nodes, job->node) : -1;

		if (i >= 0 && (uint32_t) i < j->gres_detail_cnt && j->gres_detail_str[i])
			fits = snprintf(gres, NM_GRES_MAX, "%s", j->gres_detail_str[i]) < NM_GRES_MAX;
	}
	slurm_free_job_info_msg(m);
	if (!fits)
		snprintf(message, NM_MESSAGE_MAX, "the job's GRES on this host are longer than %d bytes: ask for fewer",
			 NM_GRES_MAX - 1);
	return fits ? 0 : -1;
}

/* The address of a node, as configured in slurmctld. */
static const char *address(const node_info_msg_t *m, const char *node)
{
	for (uint32_t i = 0; i < m->record_count; i++)
		if (m->node_array[i].name && !strcmp(m->node_array[i].name, node))
			return m->node_array[i].node_addr;
	return NULL;
}

int nm_node_hosts(const char *nodes, char *out, size_t size, char message[NM_MESSAGE_MAX])
{
	node_list list = slurm_hostlist_create(nodes);
	node_info_msg_t *m = NULL;
	size_t used = 0;
	char *name;
	int rc = 0;

	*out = 0;
	if (!list || slurm_hostlist_count(list) < 2)
		goto out;
	slurm_init(NULL);
	if (slurm_load_node(0, &m, SHOW_ALL)) {
		snprintf(message, NM_MESSAGE_MAX, "cannot ask slurmctld for the nodes' addresses: %.200s",
			 slurm_strerror(errno));
		rc = -1;
		goto out;
	}
	while (!rc && (name = slurm_hostlist_shift(list))) {
		const char *addr = address(m, name);
		int n = snprintf(out + used, size - used, "%s%s=%s", used ? " " : "", name, addr ? addr : name);

		if (n < 0 || (size_t) n >= size - used) {
			snprintf(message, NM_MESSAGE_MAX, "the job has too many nodes for VMs that reach each other");
			rc = -1;
		} else {
			used += (size_t) n;
		}
		free(name);
	}
	slurm_free_node_info_msg(m);
out:
	if (list)
		slurm_hostlist_destroy(list);
	return rc;
}

/* Whether the process called pid (a name in /proc) belongs to the job's VMs, and whether it is a supervisor. */
static bool is_ours(int proc, const char *pid, uid_t uid, const char *mark, bool *supervisor)
{
	char path[64], buf[4096];
	struct stat st;
	ssize_t n;
	bool marked;
	int fd;

	if (fstatat(proc, pid, &st, 0) || st.st_uid != uid)
		return false;
	snprintf(path, sizeof(path), "%.20s/environ", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	marked = nm_environ_has(fd, mark);
	close(fd);
	if (!marked)
		return false;
	snprintf(path, sizeof(path), "%.20s/cmdline", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	*supervisor = false;
	if (fd < 0)
		return true;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[n > 0 ? n : 0] = 0;
	*supervisor = n > 0 && (size_t) n > strlen(buf) + 1 && !strcmp(buf + strlen(buf) + 1, "supervise");
	return true;
}

/* Send sig (0: none) to the job's processes, or only to its supervisors. Returns the number of such processes. */
static int signal_job(uid_t uid, const char *mark, int sig, bool supervisors)
{
	struct dirent *e;
	DIR *d = opendir("/proc");
	int found = 0;

	if (!d)
		return 0;
	while ((e = readdir(d))) {
		bool supervisor;
		int fd;

		if (!isdigit((unsigned char) e->d_name[0]))
			continue;
		/*
		 * The pidfd is opened before the checks, so that it refers to the checked process even if its number
		 * is reused.
		 */
		fd = (int) syscall(SYS_pidfd_open, atoi(e->d_name), 0);
		if (fd < 0 && errno != ENOSYS)
			continue;
		if (is_ours(dirfd(d), e->d_name, uid, mark, &supervisor) && (supervisor || !supervisors)) {
			found++;
			if (sig && fd >= 0)
				syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
			else if (sig)
				kill(atoi(e->d_name), sig);
		}
		if (fd >= 0)
			close(fd);
	}
	closedir(d);
	return found;
}

/* Wait until none of these processes is left, for at most ms. */
static bool wait_gone(uid_t uid, const char *mark, bool supervisors, int ms)
{
	const struct timespec step = { .tv_nsec = 20 * 1000000 };

	for (; ms > 0; ms -= 20) {
		if (!signal_job(uid, mark, 0, supervisors))
			return true;
		nanosleep(&step, NULL);
	}
	return false;
}

/* A field of /proc/PID/stat by its number in proc(5), from 4 on; 0 if it cannot be read. */
static unsigned long long stat_field(pid_t pid, int wanted)
{
	char path[64], line[2048], *p;
	unsigned long long value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	/* The name, in parentheses, may contain anything; field 3 follows it. */
	if (fgets(line, sizeof(line), f) && (p = strrchr(line, ')')))
		for (int field = 2; *p; p++)
			if (*p == ' ' && ++field == wanted) {
				value = strtoull(p, NULL, 10);
				break;
			}
	fclose(f);
	return value;
}

unsigned long long nm_node_started(pid_t pid)
{
	return stat_field(pid, 22);
}

bool nm_node_of_slurmstepd(pid_t pid)
{
	char path[64], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%llu/comm", stat_field(pid, 4));
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		*name = 0;
	fclose(f);
	return !strcmp(name, "slurmstepd\n");
}

pid_t nm_node_child(void)
{
	DIR *d = opendir("/proc");
	pid_t found = -1;
	struct dirent *e;

	if (!d)
		return -1;
	while (found < 0 && (e = readdir(d)))
		if (isdigit((unsigned char) e->d_name[0]) &&
		    stat_field(atoi(e->d_name), 4) == (unsigned long long) getpid())
			found = atoi(e->d_name);
	closedir(d);
	return found;
}

/* Kill the extern step's own process, which is an orphan if its slurmstepd was killed. */
static void end_extern(const struct nm_settings *s, const struct nm_job *job)
{
	unsigned long long start;
	pid_t pid;
	int fd;

	if (!nm_state_read_extern(s->state, job, &pid, &start))
		return;
	fd = (int) syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	if (nm_node_started(pid) == start)
		syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
	close(fd);
}

bool nm_node_end_job(const struct nm_settings *s, const struct nm_job *job)
{
	char mark[1024];

	snprintf(mark, sizeof(mark), "NEARMETAL_SLURM_JOB=%.700s/%u.%s", s->state, job->id, job->node);
	if (signal_job(job->uid, mark, SIGTERM, true))
		wait_gone(job->uid, mark, true, GRACE_MS);
	for (int i = 0; i < 3 && signal_job(job->uid, mark, SIGKILL, false); i++)
		if (wait_gone(job->uid, mark, false, KILLED_MS))
			break;
	end_extern(s, job);
	/* A process leaves its cgroup shortly after it has disappeared from /proc. */
	for (int ms = 0; nm_cgroup_remove("/sys/fs/cgroup", job); ms += 20) {
		if (ms >= KILLED_MS)
			return true;
		nanosleep(&(struct timespec) { .tv_nsec = 20 * 1000000 }, NULL);
	}
	return false;
}

void nm_node_drain(const struct nm_job *job, const char *reason)
{
	update_node_msg_t m;
	char text[256];

	snprintf(text, sizeof(text), "nearmetal: %.200s", reason);
	slurm_init_update_node_msg(&m);
	m.node_names = (char *) job->node;
	m.node_state = NODE_STATE_DRAIN;
	m.reason = text;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(26, 5, 0)
	m.reason_uid = geteuid(); /* later versions of slurmctld determine the caller themselves */
#endif
	if (slurm_update_node(&m))
		slurm_error("nearmetal: cannot drain %s: %s", job->node, slurm_strerror(errno));
}
