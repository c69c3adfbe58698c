/* Opening a region, and detecting whether it is cached. */
#ifndef NM_REGION_MAP_H
#define NM_REGION_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nearmetal/region.h>

struct region {
	int fd;
	unsigned char *map; /* all of the file or device */
	size_t map_bytes;
	struct nm_region_header header; /* a checked copy */
	unsigned char *scratch;		/* header.scratch_bytes for the test programs */
};

/* Opens and maps the region at path: a PCI BAR in sysfs, a devdax device or a file. */
bool region_open(struct region *r, const char *path);

/* Makes an unnamed region of size bytes in dir, for two processes of one host. */
bool region_temporary(struct region *r, const char *dir, uint64_t bytes);

void region_close(struct region *r);

/* The duration of a read in ns: from the region, and from ordinary memory. */
struct read_times {
	double region, ordinary;
};

struct read_times region_read_times(const struct region *r);

/*
 * Returns whether the region is cached. An uncached read lasts about 100 ns or more, a cached one under 1 ns
 * natively. Under emulation both last some ns. Therefore their ratio is compared.
 */
bool read_times_cached(struct read_times t);

/* Measures, and prints an error for an uncached region, with the remedy. */
bool region_cached(const struct region *r, const char *path, struct read_times *t);

#endif
