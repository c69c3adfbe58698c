#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cgroup.h"

/* Levels below a job's cgroup: steps, their tasks. */
#define DEPTH 4

size_t nm_cgroup_files(const char *text, uint32_t job, bool signalled, char files[][512], size_t max)
{
	char mark[32], line[1024];
	size_t n = 0;

	snprintf(mark, sizeof(mark), "/job_%u/", job);
	while (n < max && *text) {
		size_t len = strcspn(text, "\n");
		char *controllers, *dir, *at;
		bool unified;

		snprintf(line, sizeof(line), "%.*s", (int) (len < sizeof(line) ? len : sizeof(line) - 1), text);
		text += len + (text[len] == '\n');
		controllers = strchr(line, ':');
		if (!controllers || !(dir = strchr(++controllers, ':')))
			continue;
		*dir++ = 0;
		unified = !*controllers;
		at = strstr(dir, mark);
		if (!at || strlen(dir) > 300 || strlen(controllers) > 100)
			continue;
		/* In the unified hierarchy only a leaf may have processes. */
		if (!signalled && !strcmp(controllers, "freezer"))
			at[strlen(mark) - 1] = 0;
		if (!strncmp(controllers, "name=", 5))
			controllers += 5;
		snprintf(files[n++], 512, "/sys/fs/cgroup%s%s%s/cgroup.procs", unified ? "" : "/", controllers, dir);
	}
	return n;
}

/* Whether the text names the job's own cgroup, or one in it. */
static bool names_job(const char *text, uint32_t job)
{
	char mark[32];
	const char *at;

	snprintf(mark, sizeof(mark), "/job_%u", job);
	at = strstr(text, mark);
	return at && !isdigit((unsigned char) at[strlen(mark)]);
}

bool nm_cgroup_of_job(const char *text, uint32_t job)
{
	/* From 26.05 on the unified hierarchy has another name for the job's cgroup. */
	return strstr(text, "/step_extern") || names_job(text, job);
}

/* Whether the process with this number belongs to the user and is in a cgroup of the job. */
static bool is_jobs(int pid, const struct nm_job *job)
{
	char path[32], text[8192];
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st) || st.st_uid != job->uid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	return names_job(text, job->id);
}

/*
 * Kill the user's processes in a cgroup of the job. Processes of a step whose slurmstepd was killed have no other
 * owner.
 */
static void end_below(int cgroup, const struct nm_job *job)
{
	int fd = openat(cgroup, "cgroup.procs", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	int pid;

	if (!f)
		return;
	while (fscanf(f, "%d", &pid) == 1) {
		/*
		 * The process may have ended since the list was read, and another may have its number. Therefore the
		 * check follows pidfd_open.
		 */
		int process = pid > 1 ? (int) syscall(SYS_pidfd_open, pid, 0) : -1;

		if (process >= 0 && is_jobs(pid, job))
			syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
		if (process >= 0)
			close(process);
	}
	fclose(f);
}

/* Remove the cgroup called name and those in it; the kernel removes the files in them. */
static void remove_below(int dir, const char *name, int depth, const struct nm_job *job, bool *busy)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return;
	}
	while (depth > 0 && (e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			remove_below(fd, e->d_name, depth - 1, job, busy);
	end_below(fd, job);
	closedir(d);
	if (unlinkat(dir, name, AT_REMOVEDIR) && errno == EBUSY)
		*busy = true;
}

bool nm_cgroup_remove(const char *root, const struct nm_job *job)
{
	static const char *const tops[] = { "slurm_%s/uid_%u", "slurm%.0s/uid_%u" };
	/* The unified hierarchy; the first name is used if several slurmds share a host. */
	static const char *const scopes[] = { "system.slice/%s_slurmstepd.scope/job_%u",
					      "system.slice/slurmstepd%.0s.scope/job_%u" };
	bool busy = false;
	struct dirent *e;
	DIR *d = opendir(root);

	if (!d)
		return false;
	for (size_t i = 0; i < sizeof(scopes) / sizeof(*scopes); i++) {
		char dir[300];

		snprintf(dir, sizeof(dir), scopes[i], job->node, job->id);
		remove_below(dirfd(d), dir, DEPTH, job, &busy);
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		for (size_t i = 0; i < sizeof(tops) / sizeof(*tops); i++) {
			char user[600], dir[700];
			int n = snprintf(user, sizeof(user), "%.200s/", e->d_name);

			snprintf(user + n, sizeof(user) - (size_t) n, tops[i], job->node, (unsigned int) job->uid);
			snprintf(dir, sizeof(dir), "%s/job_%u", user, job->id);
			remove_below(dirfd(d), dir, DEPTH, job, &busy);
			if (faccessat(dirfd(d), dir, F_OK, AT_SYMLINK_NOFOLLOW))
				unlinkat(dirfd(d), user, AT_REMOVEDIR); /* fails if the user has other jobs */
		}
	}
	closedir(d);
	return busy;
}
