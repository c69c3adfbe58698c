/*
 * A rank's own part of the region: rings grow from below, memory of the application from above. The border between them
 * is not fixed: the first that asks gets the room.
 */
#include <stdlib.h>

#include <nearmetal/fabric.h>

#include "base/lib.h"
#include "region/heap.h"
#include "tune.h"

/* A block of memory that the application has or had. */
struct ivs_block {
	struct ivs_block *next; /* in the order of their offsets, without gaps */
	uint64_t offset;	/* in the rank's area, bytes */
	uint64_t len;
	bool used;
	bool stays; /* survives the closing of the endpoint */
};

/* Protects all heaps of the process and their contents: threads with different domains use them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ivs_heap *heaps;

#define RING_BYTES(shift) (NM_LAYOUT_RING_CTL + ((uint64_t) NM_LAYOUT_LINE << (shift)))

/* Returns the bytes that smallest rings to all ranks without a ring yet would need. */
static uint64_t least(const struct ivs_heap *h)
{
	uint32_t slots = h->region->geo.slots;

	return h->rings_made < slots ? (slots - h->rings_made) * RING_BYTES(IVS_RING_SHIFT_MIN) : 0;
}

int ivs_heap_open(uint32_t slot, uint32_t epoch, struct ivs_heap **heap)
{
	struct ivs_heap *h = calloc(1, sizeof(*h));
	int ret;

	if (!h)
		return -FI_ENOMEM;
	ret = ivs_region_get(&h->region);
	if (ret) {
		free(h);
		return ret;
	}
	h->slot = slot;
	h->epoch = epoch;
	h->base = ivs_area(h->region, slot);
	h->taken = h->region->geo.heap + least(h);
	ret = ivs_region_take(h->region, h->base + h->region->geo.heap, least(h), true);
	if (ret) {
		ivs_region_put(h->region);
		free(h);
		return ret;
	}
	pthread_mutex_lock(&lock);
	h->next = heaps;
	heaps = h;
	pthread_mutex_unlock(&lock);
	*heap = h;
	return 0;
}

/* Frees a heap that has no block in use. */
static void drop(struct ivs_heap *h)
{
	struct ivs_heap **at;

	for (at = &heaps; *at; at = &(*at)->next)
		if (*at == h) {
			*at = h->next;
			break;
		}
	while (h->blocks) {
		struct ivs_block *b = h->blocks;

		h->blocks = b->next;
		free(b);
	}
	ivs_slot_release(h->region, h->slot, h->epoch);
	ivs_region_put(h->region);
	free(h);
}

static bool in_use(const struct ivs_heap *h)
{
	const struct ivs_block *b;

	for (b = h->blocks; b; b = b->next)
		if (b->used && b->stays)
			return true;
	return false;
}

void ivs_heap_close(struct ivs_heap *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&lock);
	h->closed = true;
	if (ivs_forked(h->region->pid) || !in_use(h))
		drop(h);
	pthread_mutex_unlock(&lock);
}

/* Allocates the area's memory up to end. Returns false if that fails. */
static bool reach(struct ivs_heap *h, uint64_t end)
{
	if (end <= h->taken)
		return true;
	if (ivs_region_take(h->region, h->base + h->taken, end - h->taken, false))
		return false;
	h->taken = end;
	return true;
}

uint64_t ivs_heap_ring(struct ivs_heap *h, uint32_t *shift)
{
	const struct nm_layout_geometry *g = &h->region->geo;
	uint64_t heap = g->area_bytes - g->heap, kept, offset = 0;
	uint32_t s;

	pthread_mutex_lock(&lock);
	/* A smallest ring must remain possible for every other rank. */
	kept = h->rings_made < g->slots ? (g->slots - h->rings_made - 1) * RING_BYTES(IVS_RING_SHIFT_MIN) : 0;
	for (s = IVS_RING_SHIFT_MAX; s >= IVS_RING_SHIFT_MIN; s--) {
		if (h->rings + h->top + RING_BYTES(s) + (s > IVS_RING_SHIFT_MIN ? kept : 0) > heap ||
		    !reach(h, g->heap + h->rings + RING_BYTES(s) + kept))
			continue;
		offset = g->heap + h->rings;
		h->rings += RING_BYTES(s);
		h->rings_made++;
		*shift = s;
		break;
	}
	pthread_mutex_unlock(&lock);
	return offset;
}

/* Returns a block of len bytes, from a free one, which it may split, or from the middle of the heap; or NULL. */
static struct ivs_block *find(struct ivs_heap *h, uint64_t len, uint64_t kept)
{
	const struct nm_layout_geometry *g = &h->region->geo;
	struct ivs_block *b, *rest;

	for (b = h->blocks; b && (b->used || b->len < len); b = b->next)
		;
	if (b && b->len > len) {
		rest = calloc(1, sizeof(*rest));
		if (!rest)
			return NULL;
		rest->offset = b->offset + len;
		rest->len = b->len - len;
		rest->next = b->next;
		b->len = len;
		b->next = rest;
	}
	if (b)
		return b;
	if (g->heap + h->rings + kept + h->top + len > g->area_bytes)
		return NULL;
	b = calloc(1, sizeof(*b));
	if (!b || ivs_region_take(h->region, h->base + g->area_bytes - h->top - len, len, false)) {
		free(b);
		return NULL;
	}
	h->top += len;
	b->offset = g->area_bytes - h->top;
	b->len = len;
	b->next = h->blocks;
	h->blocks = b;
	return b;
}

static void *take(struct ivs_heap *h, size_t len, uint64_t kept, bool stays)
{
	struct ivs_block *b;

	if (!len || len > h->region->geo.area_bytes)
		return NULL;
	b = find(h, (len + NM_LAYOUT_PAGE - 1) / NM_LAYOUT_PAGE * NM_LAYOUT_PAGE, kept);
	if (!b)
		return NULL;
	b->used = true;
	b->stays = stays;
	return h->base + b->offset;
}

void *ivs_heap_alloc(struct ivs_heap *h, size_t len)
{
	void *p;

	pthread_mutex_lock(&lock);
	p = take(h, len, least(h), false);
	pthread_mutex_unlock(&lock);
	return p;
}

/* Frees the block at memory. Returns false if it is not in h. */
static bool give(struct ivs_heap *h, const void *memory)
{
	struct ivs_block **at = &h->blocks, *b, *n;

	while ((b = *at) && (!b->used || h->base + b->offset != (const uint8_t *) memory))
		at = &b->next;
	if (!b)
		return false;
	b->used = false;
	/* Merge free neighbours, and return the lowest block to the heap. */
	for (b = h->blocks; b; b = b->next)
		while (!b->used && (n = b->next) && !n->used) {
			b->len += n->len;
			b->next = n->next;
			free(n);
		}
	b = h->blocks;
	if (!b->used) {
		h->top -= b->len;
		h->blocks = b->next;
		free(b);
	}
	return true;
}

void ivs_heap_free(struct ivs_heap *h, void *memory)
{
	pthread_mutex_lock(&lock);
	give(h, memory);
	pthread_mutex_unlock(&lock);
}

void *nm_fabric_alloc(size_t len)
{
	struct ivs_heap *h;
	uint64_t full, room, kept;
	void *p = NULL;

	pthread_mutex_lock(&lock);
	for (h = heaps; h && !p; h = h->next) {
		if (h->closed || ivs_forked(h->region->pid))
			continue;
		/* Programs know nothing about rings: room is kept for those, at most half of the heap. */
		room = (h->region->geo.area_bytes - h->region->geo.heap) / 2;
		full = h->region->geo.slots * RING_BYTES(IVS_RING_SHIFT_MAX);
		kept = full < room ? full : room;
		kept = kept > h->rings ? kept - h->rings : 0;
		p = take(h, len, kept > least(h) ? kept : least(h), true);
	}
	pthread_mutex_unlock(&lock);
	return p;
}

int nm_fabric_free(void *memory)
{
	struct ivs_heap *h;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (h = heaps; h && !found; h = h->next) {
		found = give(h, memory);
		if (found && h->closed && !in_use(h)) {
			drop(h);
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return found ? 0 : -1;
}

/*
 * Runs at the end of the process, or when the provider is unloaded: frees closed heaps whose memory the program had not
 * freed.
 */
__attribute__((destructor)) static void leave(void)
{
	struct ivs_heap *h, *next;

	/* In a child of fork it may be locked forever. Otherwise a thread that holds it has not ended yet. */
	if (pthread_mutex_trylock(&lock))
		return;
	for (h = heaps; h; h = next) {
		next = h->next;
		if (!h->closed || ivs_forked(h->region->pid))
			continue;
		/* Threads that end with the process may still read the memory. */
		h->region->keep = true;
		drop(h);
	}
	pthread_mutex_unlock(&lock);
}
