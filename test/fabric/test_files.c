/*
 * The region that a job creates in /dev/shm, where any user may create files: a file that others could have written is
 * refused and left unchanged. Without room, an error reports it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <nearmetal/fabric.h>
#include <nearmetal/region.h>

#include "lists.h"

#define OTHER_USER 65534

static int open_domain(struct ctx *c)
{
	static const struct setup plain;
	int ret;

	c->info = get_info(&plain);
	OK(fi_fabric(c->info->fabric_attr, &c->fabric, NULL));
	ret = fi_domain(c->fabric, c->info, &c->domain, NULL);
	if (ret) {
		OK(fi_close(&c->fabric->fid));
		fi_freeinfo(c->info);
	}
	return ret;
}

static void close_domain(struct ctx *c)
{
	OK(fi_close(&c->domain->fid));
	OK(fi_close(&c->fabric->fid));
	fi_freeinfo(c->info);
}

/* Returns the path in /dev/shm of the region that this process has mapped. */
static void own_path(char *path, size_t size)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long long inode = 0, of;
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	char line[512];

	CHECK(f && d);
	/* A file that was created without a name has none there. */
	while (fgets(line, sizeof(line), f))
		if (strstr(line, " /dev/shm/") && sscanf(line, "%*s %*s %*s %*s %llu", &of) == 1)
			inode = of;
	fclose(f);
	*path = 0;
	while ((e = readdir(d)))
		if (e->d_ino == inode)
			snprintf(path, size, "/dev/shm/%s", e->d_name);
	closedir(d);
	CHECK(*path);
}

/* Creates a copy of the region, which is as valid as a rank's own file. */
static void plant(const char *from, const char *to, mode_t mode)
{
	int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_EXCL, 0600);
	char page[NM_REGION_HEADER_BYTES];
	struct stat st;

	CHECK(in >= 0 && out >= 0 && !fstat(in, &st));
	CHECK(read(in, page, sizeof(page)) == sizeof(page) && write(out, page, sizeof(page)) == sizeof(page));
	OK(ftruncate(out, st.st_size));
	OK(fchmod(out, mode));
	close(in);
	close(out);
}

/* The file is refused, and keeps its inode and size. */
static void refused(struct ctx *c, const char *path)
{
	struct stat before, after;
	int ret;

	OK(lstat(path, &before));
	ret = open_domain(c);
	if (ret != -FI_EPERM)
		fail(path, (int) before.st_mode, "it is not refused", ret);
	OK(lstat(path, &after));
	CHECK(before.st_ino == after.st_ino && before.st_size == after.st_size &&
	      before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	OK(unlink(path));
}

/* The error of a job without a configured region. */
static void no_region(const char *what)
{
	char job[64];

	unsetenv("FI_IVSHMEM_REGION");
	unsetenv("NEARMETAL_REGION");
	snprintf(job, sizeof(job), "%s-%d", what, (int) getpid());
	setenv("FI_IVSHMEM_JOB", job, 1);
}

static void planted(struct ctx *c)
{
	char path[300], good[300], other[300];
	struct stat st;

	no_region("planted");
	OK(open_domain(c));
	own_path(path, sizeof(path));
	OK(stat(path, &st));
	CHECK((st.st_mode & 07777) == 0600 && st.st_nlink == 1 && st.st_uid == geteuid());
	snprintf(good, sizeof(good), "/dev/shm/planted-good-%d", (int) getpid());
	snprintf(other, sizeof(other), "/dev/shm/planted-other-%d", (int) getpid());
	plant(path, good, 0600);
	close_domain(c);
	CHECK(access(path, F_OK));

	/* Others may read or write it. */
	plant(good, path, 0666);
	refused(c, path);
	plant(good, path, 0640);
	refused(c, path);
	/* It has another name, in another user's directory. */
	plant(good, path, 0600);
	OK(link(path, other));
	refused(c, path);
	/* A link to another file. */
	OK(symlink(other, path));
	refused(c, path);
	OK(unlink(other));
	/* A link to a file that does not exist, and is not created. */
	OK(symlink(other, path));
	refused(c, path);
	CHECK(access(other, F_OK));
	/* Opening a FIFO does not block. */
	OK(mkfifo(path, 0600));
	refused(c, path);
	if (!geteuid()) {
		plant(good, path, 0600);
		OK(chown(path, OTHER_USER, (gid_t) -1));
		refused(c, path);
		plant(good, path, 0666);
		OK(chown(path, OTHER_USER, (gid_t) -1));
		refused(c, path);
	}
	/* A file of an earlier run is replaced, complete or not. */
	plant(good, path, 0600);
	OK(truncate(path, 100));
	OK(open_domain(c));
	OK(stat(path, &st));
	CHECK(st.st_size > NM_REGION_HEADER_BYTES);
	close_domain(c);
	plant(good, path, 0600);
	OK(truncate(path, NM_REGION_HEADER_BYTES));
	OK(open_domain(c));
	close_domain(c);
	CHECK(access(path, F_OK));
	OK(unlink(good));
}

/* A path from the environment is checked like any other: it is the user's file, or refused. */
static void given(struct ctx *c)
{
	const char *path = getenv("FI_IVSHMEM_REGION");
	char good[300];

	snprintf(good, sizeof(good), "%s-good", path);
	OK(open_domain(c));
	plant(path, good, 0600);
	close_domain(c);
	plant(good, path, 0666);
	refused(c, path);
	OK(unlink(good));
}

/*
 * All ranks of a job start at the same time, repeatedly: they share one file, created with its mode regardless of the
 * umask. left: they find a file of an earlier run. A rank that removes it does not remove the file that another has put
 * in its place.
 */
static void together(struct ctx *c, bool left)
{
	enum { ROUNDS = 50 };
	struct {
		ino_t inode[ROUNDS][8];
	} *s = shared();
	char path[300], good[300], job[64];
	struct stat st;

	unsetenv("FI_IVSHMEM_REGION");
	unsetenv("NEARMETAL_REGION");
	snprintf(job, sizeof(job), "together-%d", (int) getppid());
	setenv("FI_IVSHMEM_JOB", job, 1);
	snprintf(good, sizeof(good), "/dev/shm/together-good-%d", (int) getppid());
	umask(0);
	if (!c->rank && left) {
		OK(open_domain(c));
		own_path(path, sizeof(path));
		plant(path, good, 0600);
		close_domain(c);
	}
	for (int round = 0; round < ROUNDS; round++) {
		if (!c->rank && left)
			plant(good, path, 0600);
		barrier(c);
		OK(open_domain(c));
		own_path(path, sizeof(path));
		OK(stat(path, &st));
		CHECK((st.st_mode & 07777) == 0600);
		s->inode[round][c->rank] = st.st_ino;
		barrier(c);
		CHECK(s->inode[round][c->rank] == s->inode[round][0]);
		close_domain(c);
		barrier(c);
	}
	if (!c->rank && left)
		OK(unlink(good));
}

static void raced(struct ctx *c)
{
	together(c, false);
}

static void stale(struct ctx *c)
{
	together(c, true);
}

/*
 * If the launcher has a secret, the name follows from it, so that another user, who knows the job's name but not the
 * secret, cannot put a file in the region's place.
 */
static void named_by_secret(struct ctx *c)
{
	static const char *const secrets[] = { "0123456789abcdef-1", "0123456789abcdef-1", "0123456789abcdef-2", NULL };
	struct {
		char path[4][300];
	} *s = shared();
	char job[64];

	unsetenv("FI_IVSHMEM_REGION");
	unsetenv("NEARMETAL_REGION");
	snprintf(job, sizeof(job), "secret-%d", (int) getppid());
	setenv("PMIX_NAMESPACE", job, 1);
	if (secrets[c->rank])
		setenv("OMPI_MCA_orte_precondition_transports", secrets[c->rank], 1);
	else
		unsetenv("OMPI_MCA_orte_precondition_transports");
	OK(open_domain(c));
	own_path(s->path[c->rank], sizeof(s->path[0]));
	barrier(c);
	for (int i = 0; i < 4; i++) {
		bool one_job = i == c->rank || i + c->rank == 1;

		CHECK(!strcmp(s->path[i], s->path[c->rank]) == one_job);
	}
	barrier(c);
	close_domain(c);
}

#define FILLER "/dev/shm/filler"

/* Fills /dev/shm completely. */
static void fill_shm(void)
{
	static const char page[4096];
	int fd = open(FILLER, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	while (write(fd, page, sizeof(page)) == sizeof(page))
		;
	CHECK(errno == ENOSPC);
	close(fd);
}

/* Opens another endpoint and returns the error. */
static int try_endpoint(struct ctx *c)
{
	struct fid_ep *ep;
	int ret;

	OK(fi_endpoint(c->domain, c->info, &ep, NULL));
	OK(fi_ep_bind(ep, &c->av->fid, 0));
	OK(fi_ep_bind(ep, &c->txcq->fid, FI_TRANSMIT));
	OK(fi_ep_bind(ep, &c->rxcq->fid, FI_RECV));
	ret = fi_enable(ep);
	OK(fi_close(&ep->fid));
	return ret;
}

/*
 * Another program fills /dev/shm: before a region exists, before a rank has its part of it, and while ranks use it. The
 * first two are errors, and the third does not affect messages. Memory for the program is then not available.
 */
static void full_shm(struct ctx *c)
{
	static const size_t sizes[] = { 8, 300, 5000, 70000, 1 << 20 };
	static const struct setup plain;
	static char out[1 << 20], in[1 << 20];
	struct nm_fabric_memory *ops;
	unsigned char name[64];
	size_t len = sizeof(name), i, most = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16m")) {
		fprintf(stderr, "skipped: a file system can be mounted by root only\n");
		return;
	}
	no_region("full");
	fill_shm();
	CHECK(open_domain(c) == -FI_ENOSPC);
	OK(unlink(FILLER));

	open_all(c, &plain);
	OK(fi_getname(&c->ep->fid, name, &len));
	CHECK(fi_av_insert(c->av, name, 1, &c->peer[0], 0, NULL) == 1);
	OK(fi_open_ops(&c->domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL));
	fill_shm();
	CHECK(try_endpoint(c) == -FI_ENOSPC);
	CHECK(!ops->alloc(c->domain, 4096));
	for (int round = 0; round < 200; round++) {
		i = (size_t) round % (sizeof(sizes) / sizeof(*sizes));
		fill(out, sizes[i], (unsigned int) round);
		OK(fi_trecv(c->ep, in, sizeof(in), NULL, c->peer[0], 1, 0, NULL));
		RETRY(c, fi_tsend(c->ep, out, sizes[i], NULL, c->peer[0], 1, NULL));
		CHECK(wait_comp(c, c->rxcq).len == sizes[i]);
		wait_comp(c, c->txcq);
		CHECK(filled(in, sizes[i], (unsigned int) round));
	}
	OK(unlink(FILLER));
	OK(try_endpoint(c));
	/* With room, all of the available memory can be allocated and written. */
	for (void *memory; (memory = ops->alloc(c->domain, 65536)); most += 65536)
		memset(memory, 1, 65536);
	CHECK(most);
	close_all(c);
}

const struct test test_files[] = { { "files_planted", 1, planted, .bare = true },
				   { "files_given", 1, given, .bare = true },
				   { "files_raced", 8, raced, .bare = true },
				   { "files_stale", 8, stale, .bare = true },
				   { "files_secret", 4, named_by_secret, .bare = true },
				   { "files_full", 1, full_shm, .bare = true,
				     .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_RANKS=4" } },
				   { 0 } };
