/* The parameters FI_IVSHMEM_*. fi_info -e lists them, except those of tests (FI_IVSHMEM_TEST=1). */
#ifndef IVS_PARAM_H
#define IVS_PARAM_H

#include <stddef.h>

#define IVS_WINDOW_MAX ((size_t) 512 << 10) /* the largest FI_IVSHMEM_WINDOW */

struct ivs_param {
	char *region;	     /* path of the region, or NULL */
	size_t region_size;  /* bytes of a region that the provider creates */
	size_t ranks;	     /* slots of such a region, 0: as many as fit */
	char *job;	     /* name of the job, or NULL */
	int cma;	     /* read peers' memory directly */
	size_t cma_min;	     /* bytes: the smallest message that is read directly */
	int cma_measure;     /* use cma_min only where direct reading is measured to be faster */
	size_t cma_max;	     /* bytes: the largest message that is read directly */
	size_t cma_coop;     /* bytes: the smallest message that both ends copy, 0: none */
	int nt;		     /* copy non-temporally where that is faster */
	size_t inline_max;   /* bytes: the largest message in the ring itself */
	size_t window;	     /* bytes of a message sent before the receiver requests more */
	size_t unexpected;   /* bytes held for receives not yet posted */
	size_t timeout;	     /* ms without a heartbeat after which a rank is dead */
	char *core;	     /* provider for other hosts, or "none" */
	char *devices;	     /* its devices, separated by commas: each rank uses the nearest; NULL: its first */
	size_t wait_timeout; /* ms: the longest sleep of a rank that can be woken */
	int overcommit;	     /* the host has fewer CPUs than its VMs have vCPUs */
	int uncached;	     /* allow an uncached region */
};

extern struct ivs_param ivs_param;

/* Defines the parameters and reads them. */
void ivs_param_init(void);

#endif /* IVS_PARAM_H */
