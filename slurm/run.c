#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

/* The maximum number of stacked file systems to unmount: nearmetal's own, and those of a user by FUSE. */
#define LAYERS_MAX 64

/* The directory for mount(2): a path through the job's own descriptor, which is not affected by renames. */
static void path_of(int job, char path[64])
{
	snprintf(path, 64, "/proc/self/fd/%d/run", job);
}

static int mount_run(int job, uid_t uid, gid_t gid)
{
	char path[64], options[128];

	path_of(job, path);
	snprintf(options, sizeof(options), "mode=0700,uid=%u,gid=%u,size=" NM_RUN_BYTES ",nr_inodes=" NM_RUN_FILES,
		 (unsigned int) uid, (unsigned int) gid);
	return mount("nearmetal", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options);
}

int nm_run_make(int job, uid_t uid, gid_t gid)
{
	/*
	 * The directory below the mount belongs to root, so that a process that does not see the mount cannot create
	 * files in it.
	 */
	if (mkdirat(job, "run", 0700))
		return -1;
	return mount_run(job, uid, gid);
}

int nm_run_here(int job, uid_t uid, gid_t gid)
{
	struct stat above, st;

	if (fstat(job, &above) || fstatat(job, "run", &st, AT_SYMLINK_NOFOLLOW))
		return -1;
	return st.st_dev != above.st_dev ? 0 : mount_run(job, uid, gid);
}

int nm_run_remove(int job)
{
	char path[64];

	path_of(job, path);
	for (int i = 0; i < LAYERS_MAX && !umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW); i++)
		;
	return unlinkat(job, "run", AT_REMOVEDIR) && errno != ENOENT ? -1 : 0;
}
