/* A rank's own side of all its rings: its area of the region, the bounce buffers in that, and what wakes it. */
#ifndef IVS_HOME_H
#define IVS_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "region/region.h"

struct ivs_heap;
struct ivs_ring_free;

#define IVS_NO_DOORBELL (-2) /* it cannot be opened */

/* What ring/bounce.c knows of the pool that begins at the rank's area. */
struct ivs_bounce_pool {
	uint8_t *pages; /* of each page: 0, it is free; of a buffer's first, how many that has; of the others any */
	uint32_t count; /* pages that there are */
	uint32_t turn;	/* those that are used now, */
	uint32_t taken; /* and how many were taken since they are as many */
	uint32_t next;	/* from here on the next buffer is searched for */
	uint32_t end; /* the byte of the pool behind the buffer that was taken last, if it was packed; 0: it was not */
	uint32_t touched; /* from there on none was asked about (ivs_bounce_fresh) */
};

struct ivs_home {
	struct ivs_region *region; /* NULL: no slot of it was claimed */
	uint8_t *area;		   /* the rank's, in the region */
	struct ivs_bounce_pool pool;
	struct ivs_heap *heap;	      /* the rest of the area; NULL: none, or it was given back */
	struct ivs_ring_free *unused; /* rings of peers that are gone */
	struct ivs_list rings;	      /* struct ivs_ring.link of those that are sent on */
	const int *wake;	      /* the epoll that the doorbell is added to, -1: nobody has waited */
	uint32_t slot, epoch;
	uint32_t bounced; /* messages sent that had a bounce buffer */
	int doorbell;	  /* what neighbours ring while we sleep, -1: not open yet */
	uint8_t protocol; /* of the messages in the rings, NM_PROTOCOL_* */
};

/* Prepares an empty home. wake: an epoll that lives as long, or NULL: the rank has no doorbell. */
void ivs_home_init(struct ivs_home *h, uint8_t protocol, const int *wake);
/*
 * Claims a slot of the region: one that another rank shows under this name, or with name 0 any. Opens its area.
 * Returns 0 or a negative error, after which nothing is claimed.
 */
int ivs_home_claim(struct ivs_home *h, struct ivs_region *region, uint64_t name);
/* Releases the slot with its area, and closes the doorbell. Does nothing if no slot was claimed. */
void ivs_home_leave(struct ivs_home *h);
/* Frees what this process knows of the area. Nothing in the region is touched. */
void ivs_home_free(struct ivs_home *h);

#endif /* IVS_HOME_H */
