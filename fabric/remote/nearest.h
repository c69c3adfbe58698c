/*
 * Chooses the RDMA device of a rank among several: one on its own NUMA node, and of several such the one that follows
 * from its number within the VM.
 */
#ifndef IVS_NEAREST_H
#define IVS_NEAREST_H

#include <sched.h>
#include <stddef.h>

#define IVS_NEAREST_CPUS 8192 /* CPUs in a set of ivs_nearest() */
#define IVS_NEAREST_MAX	 32   /* devices to choose from */

/*
 * Returns the index of the device to use among names (count: at most IVS_NEAREST_MAX; if it is 0, returns 0). cpus
 * (IVS_NEAREST_CPUS bits) are those on which the rank may run; NULL: unknown. local is its number among the ranks of
 * this VM. Nodes are read below sys, which is /sys except in tests. If no device is known to be on a node of the rank,
 * all of them are candidates.
 */
size_t ivs_nearest(const char *sys, const char *const *names, size_t count, const cpu_set_t *cpus, unsigned long local);

#endif /* IVS_NEAREST_H */
