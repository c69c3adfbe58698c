/*
 * A rank's bounce buffers, which hold pieces of messages. Each is a run of pages of the rank's pool, which is at the
 * begin of its area. A buffer's number is that of its first page.
 */
#ifndef IVS_BOUNCE_H
#define IVS_BOUNCE_H

#include "ring/home.h"

#define IVS_NO_BOUNCE	     UINT32_MAX
#define IVS_BOUNCE_PAGES_MAX 126 /* pages of one buffer */

/* Sets up the pool of a rank that has a slot. Returns 0 or a negative error. */
int ivs_bounce_pool_open(struct ivs_home *h);
void ivs_bounce_pool_close(struct ivs_home *h);

/*
 * Allocates a buffer of that many bytes, at most IVS_BOUNCE_PAGES_MAX pages. Returns its number, or IVS_NO_BOUNCE
 * without room.
 */
uint32_t ivs_bounce_alloc(struct ivs_home *h, size_t bytes);

/*
 * Returns the offset in the pool at which a packed buffer of up to that many bytes may begin: at the begin of a line,
 * not of a page. The line before it also belongs to the buffer. row: directly after the last packed buffer, unless
 * another one was allocated since. Nothing is allocated yet. Returns IVS_NO_BOUNCE without room.
 */
uint32_t ivs_bounce_seek(struct ivs_home *h, size_t bytes, bool row);

/*
 * Allocates a buffer of that many bytes, 1 or more, at an offset that ivs_bounce_seek returned for as many or more.
 * Returns its number.
 */
uint32_t ivs_bounce_pack(struct ivs_home *h, uint32_t at, size_t bytes);

/*
 * Splits a buffer that is not packed: into its first bytes bytes, which are whole pages and fewer than it has, and the
 * rest. Returns the number of the rest.
 */
uint32_t ivs_bounce_split(struct ivs_home *h, uint32_t bounce, size_t bytes);

/* Returns true if some of the buffer's memory is new to this function: the kernel still has to allocate it. */
bool ivs_bounce_fresh(struct ivs_home *h, uint32_t bounce);

/* Frees an allocated buffer. */
void ivs_bounce_free(struct ivs_home *h, uint32_t bounce);

/* Returns the first byte of one of this rank's buffers. */
static inline uint8_t *ivs_bounce_at(const struct ivs_home *h, uint32_t bounce)
{
	return h->area + (size_t) bounce * NM_LAYOUT_PAGE;
}

#endif /* IVS_BOUNCE_H */
