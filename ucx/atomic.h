/* A peer's memory in the region, as the operations on it have it: a key that was unpacked and checked (window.c). */
#ifndef IVU_ATOMIC_H
#define IVU_ATOMIC_H

#include "abi/abi.h"
#include "region/region.h"

struct ivu_opened {
	struct ivs_region *region;
	uint8_t *at;	       /* where the memory is here */
	uint64_t addr, len;    /* of the memory, as its owner has it */
	const uint64_t *owner; /* of the slot: it says whose the memory is now, */
	uint64_t is;	       /* and what it said when the key was packed */
};

/* Where len bytes at a peer's address are here. NULL: they are not of that memory, or its owner has left. */
static inline uint8_t *ivu_place(uintptr_t rkey, uint64_t addr, size_t len)
{
	const struct ivu_opened *o = (const struct ivu_opened *) rkey;

	if (addr < o->addr || addr - o->addr > o->len || len > o->len - (addr - o->addr) ||
	    __atomic_load_n(o->owner, __ATOMIC_RELAXED) != o->is)
		return NULL;
	return o->at + (addr - o->addr);
}

/* Sets the functions of that memory's atomics. */
void ivu_atomic_ops(struct ivu_iface_ops *ops);
/* Adds to what an interface states: which atomics there are. */
void ivu_atomic_query(struct ivu_iface_attr *attr);

#endif /* IVU_ATOMIC_H */
