/* Files of virtiofs mounts in the VM's caches, kept below a limit. */
#ifndef NM_INODES_H
#define NM_INODES_H

#include <stdint.h>

/* From now on the caches are dropped before they hold max inodes of virtiofs; 0: never. The loop does it. */
void inodes_bound(uint64_t max);

/* When to count the inodes that the VM knows, and when to drop them. */
struct inodes {
	uint64_t limit; /* inodes that the VM may know */
	uint64_t bound; /* inodes from which the caches are dropped */
};

#define INODES_PER_SECOND 100000 /* inodes that a VM may come to know: as fast as a virtiofsd serves them */
#define INODES_LEAST	  ((uint64_t) 10000000)	   /* ns between two counts, at least */
#define INODES_MOST	  ((uint64_t) 10000000000) /* ns between two counts, at most */

/* Begins with a limit of max inodes. */
void inodes_init(struct inodes *i, uint64_t max);
/* There are n inodes. Returns the ns until the next count; 0: drop the caches now. */
uint64_t inodes_count(const struct inodes *i, uint64_t n);
/* The caches were dropped, and n inodes are left. Returns the ns until the next count. */
uint64_t inodes_dropped(struct inodes *i, uint64_t n);

#endif
