#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"
#include "state.h"

int nm_state_node(char node[128])
{
	const char *name = getenv("SLURMD_NODENAME");

	if (!name || !*name || strlen(name) >= 128 || !strcmp(name, ".") || !strcmp(name, ".."))
		return -1;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char) *p) && !strchr("-_.", *p))
			return -1;
	strcpy(node, name);
	return 0;
}

/* Open root's directory, and create it if make is set. No other user may write to it. */
static int open_state(const char *state, int make)
{
	struct stat st;
	int fd;

	if (make && mkdir(state, 0711) && errno != EEXIST)
		return -1;
	fd = open(state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 022) {
		close(fd);
		errno = EPERM;
		return -1;
	}
	return fd;
}

static void job_name(uint32_t id, const char *node, char out[160])
{
	snprintf(out, 160, "%u.%s", id, node);
}

static void left_name(uint32_t id, const char *node, char out[160])
{
	snprintf(out, 160, NM_LEFT "%u.%s", id, node);
}

static int open_job(const char *state, uint32_t id, const char *node)
{
	char name[160];
	int dir = open_state(state, 0), fd;

	if (dir < 0)
		return -1;
	job_name(id, node, name);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(dir);
	return fd;
}

static int write_file(int dir, const char *name, const char *text)
{
	size_t len = strlen(text);
	int fd, e;

	if (unlinkat(dir, name, 0) && errno != ENOENT)
		return -1;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	while (len) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			e = errno;
			close(fd);
			errno = e;
			return -1;
		}
		text += n;
		len -= (size_t) n;
	}
	return close(fd);
}

/* A file that does not fit is an error: files are never read partly. */
static ssize_t read_file(int dir, const char *name, char *text, size_t size)
{
	size_t len = 0;
	ssize_t n;
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), e;

	if (fd < 0)
		return -1;
	do {
		n = read(fd, text + len, size - len);
		if (n > 0)
			len += (size_t) n;
	} while (len < size && (n > 0 || (n < 0 && errno == EINTR)));
	e = n < 0 ? errno : EFBIG;
	close(fd);
	if (n < 0 || len == size) {
		*text = 0;
		errno = e;
		return -1;
	}
	text[len] = 0;
	return (ssize_t) len;
}

/* Remove a job's directory. Everything in it belongs to root, except the file system mounted on run. */
static int remove_job(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), bad = 0;
	struct dirent *e;
	DIR *d;

	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	if (nm_run_remove(fd))
		bad = errno;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -1;
	}
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "run") &&
		    unlinkat(fd, e->d_name, 0) && errno != ENOENT)
			bad = errno;
	closedir(d);
	errno = bad;
	return bad || (unlinkat(dir, name, AT_REMOVEDIR) && errno != ENOENT) ? -1 : 0;
}

int nm_state_create(const char *state, const struct nm_job *job)
{
	char name[160], left[160], text[sizeof(job->request) + sizeof(job->dir) + 64];
	const char *conf = getenv("SLURM_CONF");
	int dir, fd = -1, rc = -1, e;

	dir = open_state(state, 1);
	if (dir < 0)
		return -1;
	job_name(job->id, job->node, name);
	left_name(job->id, job->node, left);
	snprintf(text, sizeof(text), "%s\n%u %u\n%s\n", job->request, (unsigned int) job->uid, (unsigned int) job->gid,
		 job->dir);
	/* The lock keeps a sweep from judging a job of this number in the meantime (internal/slurm/sweep.go). */
	while (flock(dir, LOCK_EX))
		if (errno != EINTR)
			goto out;
	/* A requeued job has the same number and the same cgroups. */
	if (remove_job(dir, name) || (unlinkat(dir, left, 0) && errno != ENOENT) || mkdirat(dir, name, 0711))
		goto out;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || write_file(fd, "request", text) || (conf && write_file(fd, "conf", conf)) ||
	    nm_run_make(fd, job->uid, job->gid))
		goto out;
	rc = 0;
out:
	e = errno;
	if (fd >= 0)
		close(fd);
	close(dir);
	errno = e;
	return rc;
}

int nm_state_read(const char *state, uint32_t id, struct nm_job *job)
{
	char text[sizeof(job->request) + sizeof(job->dir) + 64], *line, *rest = text;
	unsigned int uid, gid;
	ssize_t n;
	int fd;

	memset(job, 0, sizeof(*job));
	job->id = id;
	if (nm_state_node(job->node)) {
		errno = EINVAL;
		return -1;
	}
	fd = open_job(state, id, job->node);
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	n = read_file(fd, "request", text, sizeof(text));
	close(fd);
	if (n < 0)
		return errno == ENOENT ? 0 : -1;
	errno = EINVAL;
	if (!(line = strsep(&rest, "\n")) || strlen(line) >= sizeof(job->request))
		return -1;
	strcpy(job->request, line);
	if (!(line = strsep(&rest, "\n")) || sscanf(line, "%u %u", &uid, &gid) != 2)
		return -1;
	job->uid = uid;
	job->gid = gid;
	if (!(line = strsep(&rest, "\n")) || strlen(line) >= sizeof(job->dir))
		return -1;
	strcpy(job->dir, line);
	return 1;
}

/* The names of these files in the job's directory. */
static const char *const file_names[] = {
	[NM_FILE_RESULT] = "result", [NM_FILE_DEVICES] = "devices", [NM_FILE_REGION] = "region",
	[NM_FILE_HOSTS] = "hosts",   [NM_FILE_EXTERN] = "extern",
};

int nm_state_write_file(const char *state, const struct nm_job *job, enum nm_state_file what, const char *text)
{
	int fd = open_job(state, job->id, job->node), rc;

	if (fd < 0)
		return -1;
	rc = write_file(fd, file_names[what], text);
	close(fd);
	return rc;
}

ssize_t nm_state_read_file(const char *state, const struct nm_job *job, enum nm_state_file what, char *text,
			   size_t size)
{
	int fd = open_job(state, job->id, job->node);
	ssize_t n;

	*text = 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	n = read_file(fd, file_names[what], text, size);
	close(fd);
	return n < 0 && errno == ENOENT ? 0 : n;
}

int nm_state_write_extern(const char *state, const struct nm_job *job, pid_t pid, unsigned long long start)
{
	char text[64];

	snprintf(text, sizeof(text), "%d %llu\n", (int) pid, start);
	return nm_state_write_file(state, job, NM_FILE_EXTERN, text);
}

int nm_state_read_extern(const char *state, const struct nm_job *job, pid_t *pid, unsigned long long *start)
{
	char text[64];
	int n;

	if (nm_state_read_file(state, job, NM_FILE_EXTERN, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%d %llu", &n, start) != 2 || n <= 1)
		return 0;
	*pid = n;
	return 1;
}

int nm_state_write_left(const char *state, const struct nm_job *job)
{
	char name[160], text[32];
	int dir = open_state(state, 0), rc;

	if (dir < 0)
		return -1;
	left_name(job->id, job->node, name);
	snprintf(text, sizeof(text), "%u\n", (unsigned int) job->uid);
	rc = write_file(dir, name, text);
	close(dir);
	return rc;
}

int nm_state_remove(const char *state, uint32_t id, const char *node)
{
	char name[160];
	int dir = open_state(state, 0), rc;

	if (dir < 0)
		return errno == ENOENT ? 0 : -1;
	job_name(id, node, name);
	rc = remove_job(dir, name);
	close(dir);
	return rc;
}

int nm_state_run_here(const char *state, const struct nm_job *job)
{
	int fd = open_job(state, job->id, job->node), rc, e;

	if (fd < 0)
		return -1;
	rc = nm_run_here(fd, job->uid, job->gid);
	e = errno;
	close(fd);
	errno = e;
	return rc;
}

int nm_state_run_dir(const char *state, const struct nm_job *job, char *out, size_t size)
{
	int n = snprintf(out, size, "%s/%u.%s/run", state, job->id, job->node);

	return n > 0 && (size_t) n < size ? 0 : -1;
}
