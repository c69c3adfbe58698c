/* A rank's own part of the region: its rings, and memory for the application. */
#ifndef IVS_HEAP_H
#define IVS_HEAP_H

#include "region/region.h"

struct ivs_heap {
	struct ivs_heap *next; /* next heap of the process */
	struct ivs_region *region;
	uint32_t slot, epoch;
	uint8_t *base;	/* the rank's area */
	uint64_t taken; /* rings have memory up to this byte of the area (ivs_region_take()) */
	uint64_t rings; /* bytes of rings, from below */
	uint64_t top;	/* bytes of blocks, from above */
	uint32_t rings_made;
	struct ivs_block *blocks;
	bool closed; /* the endpoint was closed */
};

/*
 * Opens the heap of a claimed slot. It has memory for a smallest ring to each rank, and allocates more when needed.
 * Returns 0 or a negative error.
 */
int ivs_heap_open(uint32_t slot, uint32_t epoch, struct ivs_heap **heap);
/*
 * Closes the heap and releases the slot. While the program has memory of nm_fabric_alloc(), both wait until it is
 * freed, or until the process ends. NULL is ignored.
 */
void ivs_heap_close(struct ivs_heap *heap);

/*
 * Allocates room for the largest ring possible, of 2^*shift lines. Returns its offset in the area, or 0. It is never
 * freed.
 */
uint64_t ivs_heap_ring(struct ivs_heap *heap, uint32_t *shift);

/* Allocates len bytes in whole pages, or returns NULL. The memory ends with the endpoint. */
void *ivs_heap_alloc(struct ivs_heap *heap, size_t len);
void ivs_heap_free(struct ivs_heap *heap, void *memory);

#endif /* IVS_HEAP_H */
