/*
 * A rank's own side of all its rings: its area of the region, the bounce buffers in the area, and the doorbell that
 * wakes the rank.
 */
#ifndef IVS_HOME_H
#define IVS_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "region/region.h"

struct ivs_heap;
struct ivs_ring_free;

#define IVS_NO_DOORBELL (-2) /* it cannot be opened */

/* The state of the pool of bounce buffers at the begin of the rank's area (ring/bounce.c). */
struct ivs_bounce_pool {
	uint8_t *pages;	  /* per page: 0: free; for a buffer's first page its number of pages; else any value */
	uint32_t count;	  /* pages of the pool */
	uint32_t turn;	  /* pages in use, from the first on */
	uint32_t taken;	  /* pages allocated since turn last grew */
	uint32_t next;	  /* the page from which the next buffer is searched for */
	uint32_t end;	  /* the pool's byte after the last buffer if that was packed, else 0 */
	uint32_t touched; /* the first page that ivs_bounce_fresh has not seen yet */
};

struct ivs_home {
	struct ivs_region *region; /* NULL: no slot was claimed */
	uint8_t *area;		   /* this rank's area of the region */
	struct ivs_bounce_pool pool;
	struct ivs_heap *heap;	      /* the rest of the area; NULL: none, or it was released */
	struct ivs_ring_free *unused; /* memory of rings to peers that are gone */
	struct ivs_list rings;	      /* struct ivs_ring.link of the rings that are open for sending */
	const int *wake;	      /* the epoll that the doorbell is added to, -1: nobody has waited */
	uint32_t slot, epoch;
	uint32_t bounced; /* messages sent with a bounce buffer */
	int doorbell;	  /* the socket that neighbours ring while this rank sleeps, -1: not open yet */
	uint8_t protocol; /* protocol of the messages in the rings, NM_PROTOCOL_* */
};

/* Prepares an empty home. wake: an epoll that lives at least as long, or NULL: the rank has no doorbell. */
void ivs_home_init(struct ivs_home *h, uint8_t protocol, const int *wake);
/*
 * Claims a slot of the region: the one that another rank shows under this name, or any if name is 0. Opens its area.
 * Returns 0 or a negative error; nothing is claimed after an error.
 */
int ivs_home_claim(struct ivs_home *h, struct ivs_region *region, uint64_t name);
/* Releases the slot with its area, and closes the doorbell. Does nothing if no slot was claimed. */
void ivs_home_leave(struct ivs_home *h);
/* Frees this process's memory for the area. Nothing in the region is changed. */
void ivs_home_free(struct ivs_home *h);

#endif /* IVS_HOME_H */
