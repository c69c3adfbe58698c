/* A peer's memory in the region, for the operations on it: a key that was unpacked and checked (window.c). */
#ifndef IVU_ATOMIC_H
#define IVU_ATOMIC_H

#include "abi/abi.h"
#include "region/region.h"

struct ivu_opened {
	struct ivs_region *region;
	uint8_t *at;	       /* local address of the memory */
	uint64_t addr, len;    /* of the memory, at its owner */
	const uint64_t *owner; /* owner word of the slot: the memory's current owner */
	uint64_t is;	       /* owner word when the key was packed */
};

/*
 * Returns the local address of len bytes at a peer's address. NULL: they are not in that memory, or its owner has
 * left.
 */
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
/* Adds the available atomics to an interface's attributes. */
void ivu_atomic_query(struct ivu_iface_attr *attr);

#endif /* IVU_ATOMIC_H */
