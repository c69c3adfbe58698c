/* A rank's own part of the region: its rings, and memory for the application. */
#ifndef IVS_HEAP_H
#define IVS_HEAP_H

#include "region/region.h"

struct ivs_heap {
	struct ivs_heap *next; /* of the process */
	struct ivs_region *region;
	uint32_t slot, epoch;
	uint8_t *base;	/* the rank's area */
	uint64_t taken; /* rings have memory up to this byte of the area (ivs_region_take()) */
	uint64_t rings; /* bytes of rings, from below */
	uint64_t top;	/* bytes of blocks, from above */
	uint32_t rings_made;
	struct ivs_block *blocks;
	bool closed; /* its endpoint is gone */
};

/*
 * The heap of a slot that was claimed. It has memory for a smallest ring to each rank, and takes more when that is wanted. Returns 0 or a negative error.
 */
int ivs_heap_open(uint32_t slot, uint32_t epoch, struct ivs_heap **heap);
/*
 * Releases the slot, too; but not while the program has memory by nm_fabric_alloc(): then
 * both end when it frees that, or with the process. NULL: nothing.
 */
void ivs_heap_close(struct ivs_heap *heap);

/* Room for a ring of many lines (2^shift): its offset in the area, or 0. Never freed. */
uint64_t ivs_heap_ring(struct ivs_heap *heap, uint32_t *shift);

/* len bytes in pages, or NULL; gone when the endpoint is closed. */
void *ivs_heap_alloc(struct ivs_heap *heap, size_t len);
void ivs_heap_free(struct ivs_heap *heap, void *memory);

#endif /* IVS_HEAP_H */
