#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tree.h"

/* How deep it goes: what nearmetal makes is four deep. */
#define DEPTH_MAX 32

static int remove_at(int dir, const char *name, dev_t dev, int depth)
{
	struct stat st;
	struct dirent *e;
	DIR *d;
	int fd, rc = 0;

	if (!unlinkat(dir, name, 0) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	if (fstat(fd, &st) || st.st_dev != dev || depth > DEPTH_MAX || !(d = fdopendir(fd))) {
		close(fd);
		errno = EXDEV;
		return -1;
	}
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (remove_at(dirfd(d), e->d_name, dev, depth + 1))
			rc = -1;
	}
	closedir(d);
	if (rc || (unlinkat(dir, name, AT_REMOVEDIR) && errno != ENOENT))
		return -1;
	return 0;
}

int nm_tree_remove(int dir, const char *name)
{
	struct stat st;

	if (fstat(dir, &st))
		return -1;
	return remove_at(dir, name, st.st_dev, 0);
}
