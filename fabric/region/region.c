/* Finds, creates and maps a region. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/lib.h"
#include "base/param.h"
#include "region/discovery.h"
#include "region/job.h"
#include "region/region.h"
#include "region/siphash.h"

static pthread_mutex_t ivs_region_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ivs_region *the_region;

bool ivs_forked(pid_t pid)
{
	return pid != getpid();
}

uint64_t ivs_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}

/* Returns the configured path of a region, or NULL if there is none. */
static const char *given_path(void)
{
	const char *path = ivs_param.region;

	if (path && *path)
		return path;
	path = getenv("NEARMETAL_REGION");
	if (path && *path)
		return path;
	if (access(NM_REGION_DEVICE, R_OK | W_OK) == 0)
		return NM_REGION_DEVICE;
	return NULL;
}

bool ivs_region_likely(void)
{
	const char *path = given_path();

	if (path && !strcmp(path, "none"))
		return false;
	if (!path)
		return access("/dev/shm", W_OK) == 0;
	/* If the path does not exist, a file of the job is created there. */
	return access(path, R_OK | W_OK) == 0 || errno == ENOENT;
}

/* Returns the bytes that can be mapped of an open file, memory device or PCI resource. */
static uint64_t device_bytes(int fd, const struct stat *st)
{
	char name[128];
	uint64_t bytes = 0;
	FILE *f;

	if (S_ISREG(st->st_mode))
		return (uint64_t) st->st_size;
	if (!S_ISCHR(st->st_mode))
		return 0;
	snprintf(name, sizeof(name), "/sys/dev/char/%u:%u/size", major(st->st_rdev), minor(st->st_rdev));
	f = fopen(name, "re");
	if (f) {
		if (fscanf(f, "%ju", (uintmax_t *) &bytes) != 1)
			bytes = 0;
		fclose(f);
	}
	(void) fd;
	return bytes;
}

/*
 * Reads one line repeatedly. Cached, a read needs some cycles. Uncached, each read reaches the memory or the device.
 * Returns ns per read.
 */
static double read_ns(const volatile uint8_t *p)
{
	struct timespec a, b;
	double best = 1e9;
	int round, i;

	for (round = 0; round < 5; round++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		for (i = 0; i < 64; i++)
			(void) *(const volatile uint64_t *) (const volatile void *) (p + (i & 7) * 8);
		clock_gettime(CLOCK_MONOTONIC, &b);
		double ns = ((double) (b.tv_sec - a.tv_sec) * 1e9 + (double) (b.tv_nsec - a.tv_nsec)) / 64;
		if (ns < best)
			best = ns;
	}
	return best;
}

/*
 * Returns true if p is cached, with the ns of its reads in *ns and of a private page in *ref. The comparison is needed
 * because an emulated CPU is slow everywhere.
 */
static bool cached(const uint8_t *p, double *ns, double *ref)
{
	static uint8_t page[64] __attribute__((aligned(64)));

	*ref = read_ns(page);
	*ns = read_ns(p);
	return *ns < 40 || *ns < 8 * *ref;
}

static int map_region(struct ivs_region *r, const char *path)
{
	double ns, ref;
	uint64_t offset = 0, bytes;
	const char *wrong;
	struct stat st;

	if (fstat(r->fd, &st))
		return -errno;
	bytes = device_bytes(r->fd, &st);
	if (bytes < NM_REGION_HEADER_BYTES) {
		IVS_WARN(FI_LOG_DOMAIN,
			 "region %s: it has no size that could be mapped; "
			 "give a file, a PCI resource or a devdax device\n",
			 path);
		return -FI_EINVAL;
	}
	r->map_bytes = bytes;
	r->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->map == MAP_FAILED) {
		r->map = NULL;
		IVS_WARN(FI_LOG_DOMAIN, "region %s: cannot map %ju bytes: %s\n", path, (uintmax_t) bytes,
			 ivs_lib.strerror(errno));
		return -errno;
	}
	/* A child of fork must not touch memory that its parent owns. */
	madvise(r->map, bytes, MADV_DONTFORK);
	r->base = r->map;
	wrong = nm_region_read(r->base, bytes, &r->header);
	if (wrong && bytes > NM_REGION_DEVDAX_OFFSET) {
		/* The file of a devdax region, opened outside the VM. */
		offset = NM_REGION_DEVDAX_OFFSET;
		if (!nm_region_read(r->base + offset, bytes - offset, &r->header)) {
			wrong = NULL;
			r->base += offset;
		}
	}
	if (wrong) {
		IVS_WARN(FI_LOG_DOMAIN, "region %s: %s\n", path, wrong);
		return -FI_EINVAL;
	}
	if (r->header.layout_type > NM_LAYOUT_TYPE || r->header.layout_version > NM_LAYOUT_VERSION) {
		IVS_WARN(FI_LOG_DOMAIN,
			 "region %s: its layout is of type %u version %u, "
			 "this provider knows type %d version %d; use the same nearmetal "
			 "everywhere\n",
			 path, r->header.layout_type, r->header.layout_version, NM_LAYOUT_TYPE, NM_LAYOUT_VERSION);
		return -FI_EINVAL;
	}
	if (!cached(r->base, &ns, &ref) && !ivs_param.uncached) {
		IVS_WARN(FI_LOG_DOMAIN,
			 "region %s: a read takes %.0f ns, of cached memory "
			 "%.0f ns: it is mapped uncached and would be a hundred times slower "
			 "than it should be. Give the VM the region as devdax (write-back), "
			 "or set FI_IVSHMEM_UNCACHED=1 to use it all the same\n",
			 path, ns, ref);
		return -FI_EOPNOTSUPP;
	}
	r->layout = r->base + r->header.layout_offset;
	r->head = (struct nm_layout_head *) r->layout;
	return 0;
}

/* Bytes per fallocate: a signal undoes no more than that. */
#define TAKE_STEP ((off_t) 16 << 20)

static int take(int fd, off_t at, off_t len)
{
	off_t n;

	for (; len; at += n, len -= n) {
		n = len < TAKE_STEP ? len : TAKE_STEP;
		while (fallocate(fd, 0, at, n)) {
			/* A file system without fallocate is assumed to have room. */
			if (errno == EOPNOTSUPP)
				return 0;
			if (errno != EINTR)
				return -errno;
		}
	}
	return 0;
}

int ivs_region_take(const struct ivs_region *r, const void *at, size_t len, bool warn)
{
	int ret = r->file ? take(r->fd, (const uint8_t *) at - (const uint8_t *) r->map, (off_t) len) : 0;

	if (ret && warn)
		IVS_WARN(FI_LOG_DOMAIN,
			 "region %s: cannot take %zu bytes of it: %s; remove files there, or make "
			 "that file system larger\n",
			 r->path, len, ivs_lib.strerror(-ret));
	return ret;
}

/* Chooses the geometry unless another rank has, and reads it. */
static int read_geometry(struct ivs_region *r)
{
	uint64_t word = 0, ours = nm_layout_choose(r->header.layout_bytes, (uint32_t) ivs_param.ranks);
	uint64_t job = ivs_job_hash(), other = 0;
	const char *wrong;
	int ret;

	if (!ours) {
		IVS_WARN(FI_LOG_DOMAIN,
			 "region %s: its layout area of %ju bytes is too small; "
			 "the least is about 1 MiB for %d ranks\n",
			 r->path, (uintmax_t) r->header.layout_bytes, NM_LAYOUT_MIN_SLOTS);
		return -FI_ENOSPC;
	}
	__atomic_compare_exchange_n(&r->head->geometry, &word, ours, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	if (!word)
		word = ours;
	wrong = nm_layout_geometry(word, r->header.layout_bytes, &r->geo);
	if (wrong) {
		IVS_WARN(FI_LOG_DOMAIN, "region %s: %s\n", r->path, wrong);
		return -FI_EINVAL;
	}
	/* The part that all ranks share. Each allocates its own area later. */
	ret = ivs_region_take(r, r->layout, r->geo.areas, true);
	if (ret)
		return ret;
	if (job &&
	    !__atomic_compare_exchange_n(&r->head->job, &other, job, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
	    other != job) {
		/* Launchers' names differ between runs in one cluster. */
		if (ivs_job_strict()) {
			IVS_WARN(FI_LOG_DOMAIN,
				 "region %s: it belongs to another job; give each "
				 "job a region of its own, or the same FI_IVSHMEM_JOB\n",
				 r->path);
			return -FI_EBUSY;
		}
	}
	r->slots = (struct nm_slot *) (r->layout + r->geo.slot_table);
	memcpy(&r->id, r->header.key, sizeof(r->id));
	return 0;
}

/* Writes the header of a new, empty file. */
static int format_file(int fd, size_t bytes)
{
	struct nm_region_header *h;
	void *map;
	int ret;

	if (bytes < NM_REGION_HEADER_BYTES + NM_LAYOUT_PAGE)
		return -FI_ENOSPC;
	if (ftruncate(fd, (off_t) bytes))
		return -errno;
	/* Everything that is written before the geometry is known. */
	ret = take(fd, 0, NM_REGION_HEADER_BYTES + NM_LAYOUT_PAGE);
	if (ret)
		return ret;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -FI_ENOMEM;
	memcpy(h->magic, NM_REGION_MAGIC, sizeof(h->magic));
	h->version = NM_REGION_VERSION;
	h->header_bytes = NM_REGION_HEADER_BYTES;
	h->size_bytes = bytes;
	if (getrandom(h->key, sizeof(h->key), 0) != sizeof(h->key) ||
	    getrandom(h->cluster, sizeof(h->cluster), 0) != sizeof(h->cluster))
		ret = -FI_EOTHER;
	h->scratch_offset = NM_REGION_HEADER_BYTES;
	h->layout_offset = NM_REGION_HEADER_BYTES;
	h->layout_type = NM_LAYOUT_TYPE;
	h->layout_version = NM_LAYOUT_VERSION;
	h->layout_bytes = (bytes - NM_REGION_HEADER_BYTES) & ~4095ULL;
	h->crc = nm_region_crc32c(h, offsetof(struct nm_region_header, crc));
	if (!ret) {
		/* Not by write(), which hugetlbfs does not support. */
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED) {
			ret = -errno;
		} else {
			memcpy(map, h, sizeof(*h));
			munmap(map, bytes);
		}
	}
	free(h);
	return ret;
}

/*
 * Returns the size of a new region on the file system of fd: the configured size, but at most half of the free space.
 * Huge pages are reserved at once, so that all of the free ones may be used.
 */
static size_t new_bytes(int fd)
{
	size_t bytes = ivs_param.region_size, page = 4096;
	struct statfs fs;
	uint64_t room;

	if (!fstatfs(fd, &fs) && fs.f_bsize > 0 && fs.f_blocks) {
		room = (uint64_t) fs.f_bavail * (uint64_t) fs.f_bsize;
		if ((uint32_t) fs.f_type == 0x958458f6) /* HUGETLBFS_MAGIC */
			page = (size_t) fs.f_bsize;
		else
			room /= 2;
		if (room < bytes)
			bytes = room;
	} else if (fs.f_bsize > 0) {
		page = (size_t) fs.f_bsize;
	}
	return bytes / page * page;
}

/* Removes files in dir that killed runs have left: no process has them locked. */
static void sweep(const char *dir, const char *prefix)
{
	struct dirent *e;
	struct stat st, now;
	DIR *d = opendir(dir);
	int fd;

	if (!d)
		return;
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)))
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB) &&
		    !fstatat(dirfd(d), e->d_name, &now, AT_SYMLINK_NOFOLLOW) && now.st_ino == st.st_ino)
			unlinkat(dirfd(d), e->d_name, 0);
		close(fd);
	}
	closedir(d);
}

/* Returns true if a provider made the file, false if nearmetal did. */
static bool made_here(int fd)
{
	struct nm_region_header h;

	return pread(fd, &h, sizeof(h), 0) == sizeof(h) && !memcmp(h.magic, NM_REGION_MAGIC, sizeof(h.magic)) &&
	       h.layout_type == NM_LAYOUT_TYPE;
}

/*
 * Returns true for a file that only this user can have written. Any user may create files in /dev/shm under any name,
 * and a name that follows from the job's can be guessed.
 */
static bool only_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 07777) == 0600 && st->st_nlink == 1;
}

static int not_ours(const char *path, const struct stat *st)
{
	IVS_WARN(FI_LOG_DOMAIN,
		 "region %s: it belongs to user %u, has mode %04o and %ju links, and "
		 "is not used: only a file of this user's, with mode 0600 and one link, is safe. Remove "
		 "it, or set FI_IVSHMEM_JOB to a name that others cannot guess\n",
		 path, (unsigned int) st->st_uid, (unsigned int) (st->st_mode & 07777), (uintmax_t) st->st_nlink);
	return -FI_EPERM;
}

/* Removes the file fd, on which the caller has an exclusive lock, unless another file has its name by now. */
static void unlink_same(int fd, const char *path)
{
	struct stat a, b;

	if (!fstat(fd, &a) && !lstat(path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
		unlink(path);
}

/*
 * Opens the file region at path; make: creates it if it does not exist. Each user has a shared lock as long as it
 * lives; a rank that gets an exclusive one is the only user. own: the path was not configured, so the file must be
 * writable for this user only. Returns 0 or a negative error.
 */
static int open_file(struct ivs_region *r, const char *path, bool make, bool own)
{
	struct stat st;
	char dir[sizeof(r->path)], proc[64], *slash;
	int fd, ret, tries;
	size_t bytes;

	for (tries = 0; tries < 100; tries++) {
		fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | (make ? O_NOFOLLOW : 0));
		if (fd < 0 && own && errno != ENOENT && !lstat(path, &st))
			return not_ours(path, &st);
		if (fd < 0 && errno != ENOENT) {
			IVS_WARN(FI_LOG_DOMAIN, "region %s: cannot open it: %s\n", path, ivs_lib.strerror(errno));
			return -errno;
		}
		if (fd < 0) {
			if (!make)
				return -FI_ENODATA;
			snprintf(dir, sizeof(dir), "%s", path);
			slash = strrchr(dir, '/');
			if (slash && slash != dir)
				*slash = 0;
			fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
			if (fd < 0) {
				IVS_WARN(FI_LOG_DOMAIN, "region %s: cannot make it: %s\n", path,
					 ivs_lib.strerror(errno));
				return -errno;
			}
			bytes = new_bytes(fd);
			/* Independent of the umask. */
			ret = fchmod(fd, 0600) ? -errno : format_file(fd, bytes);
			if (ret) {
				IVS_WARN(FI_LOG_DOMAIN,
					 "region %s: cannot make a file of %zu "
					 "bytes: %s; remove files there, or set FI_IVSHMEM_REGION_SIZE, in bytes\n",
					 path, bytes, ivs_lib.strerror(-ret));
				close(fd);
				return ret;
			}
			if (flock(fd, LOCK_SH)) {
				close(fd);
				return -errno;
			}
			snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
			if (linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW)) {
				ret = errno;
				close(fd);
				if (ret == EEXIST)
					continue;
				IVS_WARN(FI_LOG_DOMAIN, "region %s: cannot make it: %s\n", path, ivs_lib.strerror(ret));
				return -ret;
			}
			r->fd = fd;
			return 0;
		}
		if (fstat(fd, &st)) {
			ret = -errno;
			close(fd);
			return ret;
		}
		if (!own && (!make || !S_ISREG(st.st_mode) || !made_here(fd))) {
			r->fd = fd; /* a device, or a file from elsewhere: not to be removed */
			r->file = false;
			return 0;
		}
		/* The file was removed since it was opened. */
		if (!st.st_nlink) {
			close(fd);
			continue;
		}
		if (!only_ours(&st)) {
			close(fd);
			return not_ours(path, &st);
		}
		/* This rank is the only user: data of an earlier run must not be mistaken for peers. */
		if (!flock(fd, LOCK_EX | LOCK_NB)) {
			unlink_same(fd, path);
			close(fd);
			continue;
		}
		if (flock(fd, LOCK_SH)) {
			close(fd);
			return -errno;
		}
		/* The file may have been removed between the opening and the lock. */
		if (fstat(fd, &st) || !st.st_nlink) {
			close(fd);
			continue;
		}
		r->fd = fd;
		return 0;
	}
	return -FI_EAGAIN;
}

static void unmap_region(struct ivs_region *r)
{
	if (r->map && !r->keep)
		munmap(r->map, r->map_bytes);
	if (r->fd >= 0) {
		/* The last user removes the file. */
		if (r->file && !flock(r->fd, LOCK_EX | LOCK_NB))
			unlink_same(r->fd, r->path);
		close(r->fd);
	}
	pthread_mutex_destroy(&r->beat_lock);
	pthread_cond_destroy(&r->beat_cond);
	pthread_cond_destroy(&r->held_cond);
	free(r);
}

/* Initializes the heartbeat's lock and conditions, whose timeouts use a clock that nobody sets. */
static void init_beat(struct ivs_region *r)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&r->beat_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->beat_cond, &attr);
	pthread_cond_init(&r->held_cond, &attr);
	pthread_condattr_destroy(&attr);
}

static int open_region(struct ivs_region **region)
{
	char own[256], prefix[64], found[320];
	const char *path = given_path();
	struct ivs_region *r;
	bool ours = false;
	struct stat st;
	int ret;

	r = calloc(1, sizeof(*r));
	if (!r)
		return -FI_ENOMEM;
	r->fd = -1;
	init_beat(r);
	if (!path && ivs_region_find(found, sizeof(found)))
		path = found;
	if (!path) {
		snprintf(prefix, sizeof(prefix), "nearmetal-%u-", (unsigned int) geteuid());
		snprintf(own, sizeof(own), "/dev/shm/%s%016jx", prefix, (uintmax_t) ivs_job_hash());
		if (access(own, F_OK))
			sweep("/dev/shm", prefix);
		path = own;
		ours = true;
	}
	snprintf(r->path, sizeof(r->path), "%s", path);
	/* A file that this provider may create and remove; open_file() clears the flag for files from elsewhere. */
	r->file = lstat(path, &st) || S_ISREG(st.st_mode);
	if (ours)
		r->file = true;
	ret = open_file(r, path, r->file, ours);
	if (!ret)
		ret = map_region(r, path);
	if (!ret)
		ret = read_geometry(r);
	if (ret) {
		unmap_region(r);
		return ret;
	}
	IVS_INFO(FI_LOG_DOMAIN, "region %s: %ju bytes, %u slots, %u bounce buffers a rank\n", path,
		 (uintmax_t) r->header.size_bytes, r->geo.slots, r->geo.bounces);
	*region = r;
	return 0;
}

int ivs_region_get(struct ivs_region **region)
{
	int ret = 0;

	if (ivs_param.region && !strcmp(ivs_param.region, "none"))
		return -FI_ENODATA;
	pthread_mutex_lock(&ivs_region_lock);
	if (the_region && ivs_forked(the_region->pid)) {
		/* The parent's mapping does not exist here: a child opens the region again. */
		the_region = NULL;
	}
	if (!the_region) {
		ret = open_region(&the_region);
		if (!ret)
			the_region->pid = getpid();
	}
	if (!ret) {
		the_region->users++;
		*region = the_region;
	}
	pthread_mutex_unlock(&ivs_region_lock);
	return ret;
}

void ivs_region_put(struct ivs_region *region)
{
	pthread_mutex_lock(&ivs_region_lock);
	if (region == the_region && !ivs_forked(region->pid) && !--region->users) {
		the_region = NULL;
		pthread_mutex_lock(&region->beat_lock);
		region->beat_stop = true;
		pthread_cond_signal(&region->beat_cond);
		pthread_mutex_unlock(&region->beat_lock);
		if (region->beat_on)
			pthread_join(region->beat_thread, NULL);
		unmap_region(region);
	}
	pthread_mutex_unlock(&ivs_region_lock);
}
