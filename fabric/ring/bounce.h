/*
 * A rank's bounce buffers, which hold pieces of messages: each is a run of pages of the rank's pool, with which its
 * area begins. Their number is that of its first page.
 */
#ifndef IVS_BOUNCE_H
#define IVS_BOUNCE_H

#include "ring/home.h"

#define IVS_NO_BOUNCE	     UINT32_MAX
#define IVS_BOUNCE_PAGES_MAX 126 /* of one buffer */

/* Sets up the pool of a rank that has a slot. Returns 0 or a negative error. */
int ivs_bounce_pool_open(struct ivs_home *h);
void ivs_bounce_pool_close(struct ivs_home *h);

/* Takes a buffer of that many bytes, at most IVS_BOUNCE_PAGES_MAX pages. Returns its number, or IVS_NO_BOUNCE: there is no room. */
uint32_t ivs_bounce_alloc(struct ivs_home *h, size_t bytes);

/*
 * Where in the pool a packed buffer of up to that many bytes may begin: a byte at a line's begin, not at a page's. The line before
 * it is the buffer's, too. row: right behind the last one that was packed, if no other one was taken since. Nothing is taken yet.
 * IVS_NO_BOUNCE: there is no room.
 */
uint32_t ivs_bounce_seek(struct ivs_home *h, size_t bytes, bool row);

/* Takes a buffer of that many bytes, 1 or more, at a place that was sought for as many or more. Returns its number. */
uint32_t ivs_bounce_pack(struct ivs_home *h, uint32_t at, size_t bytes);

/*
 * Makes two of a buffer that is not packed: its first bytes bytes, which are whole pages and fewer than it has, and the rest.
 * Returns the number of the rest.
 */
uint32_t ivs_bounce_split(struct ivs_home *h, uint32_t bounce, size_t bytes);

/* Was some of the buffer's memory never asked about before? The kernel has to find it. */
bool ivs_bounce_fresh(struct ivs_home *h, uint32_t bounce);

/* Frees a buffer that was allocated. */
void ivs_bounce_free(struct ivs_home *h, uint32_t bounce);

/* The first byte of a buffer of this rank's. */
static inline uint8_t *ivs_bounce_at(const struct ivs_home *h, uint32_t bounce)
{
	return h->area + (size_t) bounce * NM_LAYOUT_PAGE;
}

#endif /* IVS_BOUNCE_H */
