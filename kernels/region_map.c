#include "region_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "summary.h"
#include "values.h"

/* Returns the size of a devdax device, from sysfs; 0: unknown. */
static uint64_t device_bytes(dev_t dev)
{
	char path[64];
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(dev), minor(dev));
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%llu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

/* Maps fd and finds the header: at the start, or at the offset of a devdax region. */
static bool map(struct region *r, const char *path, uint64_t bytes)
{
	static const uint64_t places[] = { 0, NM_REGION_DEVDAX_OFFSET };
	const char *problem = NULL;

	r->map_bytes = bytes;
	r->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->map == MAP_FAILED) {
		complain("%s: cannot map its %llu bytes: %s", path, (unsigned long long) bytes, strerror(errno));
		close(r->fd);
		return false;
	}
	for (int i = 0; i < 2 && bytes > places[i]; i++) {
		unsigned char *base = r->map + places[i];
		const char *p = nm_region_read(base, bytes - places[i], &r->header);

		if (!p) {
			r->scratch = base + r->header.scratch_offset;
			return true;
		}
		if (!problem)
			problem = p;
	}
	complain("%s: %s", path, problem);
	region_close(r);
	return false;
}

bool region_open(struct region *r, const char *path)
{
	struct stat st;
	uint64_t bytes;

	r->fd = open(path, O_RDWR | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st)) {
		complain("cannot open the region %s: %s%s", path, strerror(errno),
			 errno == ENOENT ? "; is this a VM of a cluster with a region? (between two processes of one "
					   "host: --fork)"
					 : "");
		if (r->fd >= 0)
			close(r->fd);
		return false;
	}
	bytes = S_ISCHR(st.st_mode) ? device_bytes(st.st_rdev) : (uint64_t) st.st_size;
	if ((!S_ISCHR(st.st_mode) && !S_ISREG(st.st_mode)) || !bytes || bytes > 2 * NM_REGION_MAX_BYTES) {
		complain("%s: neither a PCI resource, a devdax device nor a file with something in it", path);
		close(r->fd);
		return false;
	}
	return map(r, path, bytes);
}

bool region_temporary(struct region *r, const char *dir, uint64_t bytes)
{
	struct nm_region_header h = {
		.version = NM_REGION_VERSION,
		.header_bytes = NM_REGION_HEADER_BYTES,
		.size_bytes = bytes,
		.layout_offset = NM_REGION_HEADER_BYTES,
	};
	int err;

	memcpy(h.magic, NM_REGION_MAGIC, sizeof(h.magic));
	h.scratch_bytes = bytes / 2;
	h.scratch_offset = bytes - h.scratch_bytes;
	h.layout_bytes = h.scratch_offset - h.layout_offset;
	h.crc = nm_region_crc32c(&h, offsetof(struct nm_region_header, crc));

	r->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (r->fd < 0) {
		complain("cannot make a file in %s: %s", dir, strerror(errno));
		return false;
	}
	err = posix_fallocate(r->fd, 0, (off_t) bytes);
	if (!err && pwrite(r->fd, &h, sizeof(h), 0) != (ssize_t) sizeof(h))
		err = errno;
	if (err) {
		complain("cannot make a region of %llu bytes in %s: %s", (unsigned long long) bytes, dir,
			 strerror(err));
		close(r->fd);
		return false;
	}
	return map(r, dir, bytes);
}

void region_close(struct region *r)
{
	munmap(r->map, r->map_bytes);
	close(r->fd);
}

/* Returns the minimum of several rounds, ns per read. Uncached reads do not overlap. */
static double read_time(const volatile uint64_t *page)
{
	enum { ROUNDS = 16, READS = 512 };
	double best = 1e9;

	for (int round = 0; round < ROUNDS; round++) {
		double start = now(), t;

		for (int i = 0; i < READS; i++)
			(void) page[i];
		t = (now() - start) * 1e9 / READS;
		if (t < best)
			best = t;
	}
	return best;
}

struct read_times region_read_times(const struct region *r)
{
	static uint64_t ordinary[512] __attribute__((aligned(4096)));
	struct read_times t;

	t.region = read_time((const volatile uint64_t *) r->map);
	t.ordinary = read_time(ordinary);
	return t;
}

bool read_times_cached(struct read_times t)
{
	return t.region < 10 * t.ordinary || t.region < 10;
}

bool region_cached(const struct region *r, const char *path, struct read_times *t)
{
	*t = region_read_times(r);
	if (read_times_cached(*t))
		return true;
	complain("%s is not cached: a read takes %.0f ns, one of ordinary memory %.1f ns. The guest maps "
		 "a PCI BAR uncached, and this host's processor heeds that (AMD; Intel with some passed-through "
		 "devices). Ask for the same memory as persistent memory, which is cached: "
		 "`region: {device: devdax}` in the cluster file",
		 path, t->region, t->ordinary);
	return false;
}
