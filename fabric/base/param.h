/* The parameters FI_IVSHMEM_*; fi_info -e lists them, but for those of tests (FI_IVSHMEM_TEST=1). */
#ifndef IVS_PARAM_H
#define IVS_PARAM_H

#include <stddef.h>

struct ivs_param {
	char *region;	     /* path of the region, or NULL */
	size_t region_size;  /* bytes of a region that we make ourselves */
	size_t ranks;	     /* slots of such a region, 0: as many as fit */
	char *job;	     /* name of the job, or NULL */
	int cma;	     /* read peers' memory directly */
	size_t cma_min;	     /* bytes: from here on */
	int cma_measure;     /* from there on only where that is faster */
	size_t cma_max;	     /* bytes: up to here */
	size_t cma_coop;     /* bytes: from here on both ends copy, 0: never */
	int nt;		     /* copy non-temporally where that is faster */
	size_t inline_max;   /* bytes: in the ring itself */
	size_t window;	     /* bytes of a message sent before it was asked for */
	size_t unexpected;   /* bytes held for receives not yet posted */
	size_t timeout;	     /* ms without a heartbeat after which a rank is dead */
	char *core;	     /* provider for other hosts, or "none" */
	char *devices;	     /* of that provider, by commas: each rank uses the nearest; NULL: its first */
	size_t wait_timeout; /* ms: the longest sleep of a rank that can be woken */
	int overcommit;	     /* VMs wait for each other's CPUs */
	int uncached;	     /* use an uncached region all the same */
};

extern struct ivs_param ivs_param;

/* Defines the parameters and reads them. */
void ivs_param_init(void);

#endif /* IVS_PARAM_H */
