/*
 * A rank's bounce buffers, which hold pieces of messages: each is a run of pages of the rank's pool, with which its
 * area begins. Their number is that of its first page.
 */
#ifndef IVS_BOUNCE_H
#define IVS_BOUNCE_H

#include "object/ep.h"
#include "tune.h"

#define IVS_NO_BOUNCE	UINT32_MAX
#define IVS_BOUNCE_PAGES_MAX	254	/* of one buffer */

/* Sets up the pool of an endpoint that has an area. Returns 0 or -FI_ENOMEM. */
int ivs_bounce_pool_open(struct ivs_ep *ep);
void ivs_bounce_pool_close(struct ivs_ep *ep);

/* Takes a buffer of that many bytes, at most IVS_BOUNCE_PAGES_MAX pages. Returns its number, or IVS_NO_BOUNCE: there is no room. */
uint32_t ivs_bounce_alloc(struct ivs_ep *ep, size_t bytes);

/* Frees all of a buffer that lies behind its first bytes bytes, 1 or more. */
void ivs_bounce_trim(struct ivs_ep *ep, uint32_t bounce, size_t bytes);

/* Makes two of a buffer: its first bytes bytes, whole pages and fewer than it has, and the rest. Returns that one's number. */
uint32_t ivs_bounce_split(struct ivs_ep *ep, uint32_t bounce, size_t bytes);

/* Was some of the buffer's memory never asked about before? The kernel has to find it. */
bool ivs_bounce_fresh(struct ivs_ep *ep, uint32_t bounce);

/* Frees a buffer that was allocated. */
void ivs_bounce_free(struct ivs_ep *ep, uint32_t bounce);

/* The first byte of a buffer of this rank's. */
static inline uint8_t *ivs_bounce_at(const struct ivs_ep *ep, uint32_t bounce)
{
	return ep->area + (size_t) bounce * NM_LAYOUT_PAGE;
}

#endif /* IVS_BOUNCE_H */
