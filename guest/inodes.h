/* Files of virtiofs mounts in the VM's caches, kept below a limit. */
#ifndef NM_INODES_H
#define NM_INODES_H

#include <stdint.h>

/* Makes the loop drop the caches before they hold max inodes of virtiofs; 0: never. */
void inodes_bound(uint64_t max);

/* Decides when to count the inodes that the VM knows, and when to drop them. */
struct inodes {
	uint64_t limit; /* inodes that the VM may know */
	uint64_t bound; /* inodes from which the caches are dropped */
};

#define INODES_PER_SECOND 100000		   /* maximum rate of new inodes in a VM: the speed of a virtiofsd */
#define INODES_LEAST	  ((uint64_t) 10000000)	   /* ns between two counts, at least */
#define INODES_MOST	  ((uint64_t) 10000000000) /* ns between two counts, at most */

/* Initializes i with a limit of max inodes. */
void inodes_init(struct inodes *i, uint64_t max);
/* Records that n inodes exist. Returns the ns until the next count; 0: drop the caches now. */
uint64_t inodes_count(const struct inodes *i, uint64_t n);
/* Records that the caches were dropped, and n inodes are left. Returns the ns until the next count. */
uint64_t inodes_dropped(struct inodes *i, uint64_t n);

#endif
