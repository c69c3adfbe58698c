/* Files of virtiofs mounts in the VM's caches, kept below a bound. */
#ifndef NM_INODES_H
#define NM_INODES_H

#include <stdint.h>

/* From now on the caches are dropped before they hold max inodes of virtiofs; 0: never. The loop does it. */
void inodes_bound(uint64_t max);

#endif
