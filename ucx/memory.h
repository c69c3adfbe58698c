/* A memory domain of the region, and the memory that is registered there, which peers write by messages. */
#ifndef IVU_MEMORY_H
#define IVU_MEMORY_H

#include <pthread.h>

#include "abi/ops.h"
#include "region/region.h"

#define IVU_MEM_BUCKETS 256

/* Registered memory. */
struct ivu_mem {
	struct ivu_mem *next;
	uint64_t key;
	uint8_t *base;
	size_t len;
};

struct ivu_memory {
	struct ivu_md md;
	struct ivs_region *region;
	pthread_mutex_t lock; /* threads of one context share the memory */
	struct ivu_mem *mem[IVU_MEM_BUCKETS];
	uint64_t last_key;
	uint8_t secret[16]; /* keys are derived from it */
};

/* Copies data into memory registered under key. false: no such memory contains all of it. */
bool ivu_memory_put(struct ivu_memory *m, uint64_t key, uint64_t addr, const void *data, size_t len);

/*
 * Sets the properties that the memory domains of both transports share: which exist, and how one is opened and
 * closed.
 */
void ivu_memory_domain(struct ivu_transport *t);
/* Sets the functions of a domain that registers memory. */
void ivu_memory_ops(struct ivu_transport *t);

/*
 * Fills in the answer to a query of a memory domain: its flags (IVU_MD_FLAG_*), and the size of a packed key in
 * bytes.
 */
void ivu_memory_query(struct ivu_md *md, uint8_t *attr, uint64_t flags, size_t key_bytes);
/* Adds the kinds of memory that could be registered. */
void ivu_memory_names(uint8_t *attr);

#endif /* IVU_MEMORY_H */
