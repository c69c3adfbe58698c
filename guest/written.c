#include "written.h"
#include "fields.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	FOUND_MAX = 1000,  /* maximum number of listed files */
	SEEN_MAX = 200000, /* maximum number of entries read: some 0.3 s */
	DEPTH_MAX = 64,
	GLANCE_MAX = 2000, /* maximum number of entries that written_since reads: some 5 ms in an emulated VM */
};

/* Returns whether a path is the VM's own, or made by its boot. */
static bool left_out(const char *path, const char *name)
{
	static const char *const paths[] = {
		"/dev", "/proc", "/sys", "/run", "/tmp", "/var/tmp", "/var/log", "/var/cache", "/etc/hosts",
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		if (!strcmp(path, paths[i]))
			return true;
	return !strcmp(name, ".cache") || !strcmp(name, ".bash_history");
}

struct walk {
	struct timespec since;
	size_t see, find; /* numbers of entries and files after which the walk ends */
	bool list;	  /* print paths to standard output */
	size_t seen, found;
};

static bool since(const struct walk *w, const struct timespec *t)
{
	return t->tv_sec > w->since.tv_sec || (t->tv_sec == w->since.tv_sec && t->tv_nsec >= w->since.tv_nsec);
}

/* Walks the tree below the directory fd, whose path is path, and closes fd; false: a limit was reached. */
static bool walk(struct walk *w, int fd, char *path, size_t len, int depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	bool more = true;

	if (!d) {
		close(fd);
		return true; /* unreadable directories are not listed */
	}
	while (more && (e = readdir(d))) {
		size_t n = strlen(e->d_name);
		struct stat st;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || len + n + 2 > PATH_MAX)
			continue;
		path[len] = '/';
		memcpy(path + len + 1, e->d_name, n + 1);
		if (++w->seen > w->see)
			more = false;
		else if (left_out(path, e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
			int below = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (below >= 0)
				more = walk(w, below, path, len + 1 + n, depth + 1);
		} else if ((S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) && since(w, &st.st_ctim)) {
			if (w->found++ == w->find)
				more = false;
			else if (w->list)
				fwrite(path, 1, len + n + 2, stdout);
		}
	}
	closedir(d);
	return more;
}

int written_list(const char *age)
{
	static char path[PATH_MAX];
	struct walk w = { .see = SEEN_MAX, .find = FOUND_MAX, .list = true };
	uint64_t ms;
	int fd;

	if (*age) {
		if (!parse_number(age, INT64_MAX / 1000000, &ms)) {
			fputs("the age is not a number of ms\n", stderr);
			return 1;
		}
		clock_gettime(CLOCK_REALTIME, &w.since);
		w.since.tv_sec -= ms / 1000;
		w.since.tv_nsec -= ms % 1000 * 1000000;
		if (w.since.tv_nsec < 0) {
			w.since.tv_nsec += 1000000000;
			w.since.tv_sec--;
		}
	}
	fd = openat(0, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		perror("the overlay");
		return 1;
	}
	if (!walk(&w, fd, path, 0, 0))
		putchar(0);
	return fflush(stdout) ? 1 : 0;
}

bool written_since(int top, const struct timespec *since)
{
	static char path[PATH_MAX];
	struct walk w = { .since = *since, .see = GLANCE_MAX, .find = 0 };
	int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && !walk(&w, fd, path, 0, 0);
}
