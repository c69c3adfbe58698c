/*
 * Buffers are allocated one after the other around the pool, so that a byte is written again only after all others
 * were. By then it has left the caches of both cores for the one that they share. Memory that is reused sooner is still
 * in the cache of the core that read it, and each line has to be fetched from there: streams of 4 to 16 KiB had two to
 * three times less bandwidth, and messages needed one and a half times as long (Zen 4). At first only a part of the
 * pool is used, because a new page costs more than that. The part grows with the amount sent.
 */
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "base/common.h"
#include "ring/bounce.h"
#include "tune.h"

#define MORE   UINT8_MAX /* marks a page of a buffer other than its first */
#define SHARED 0x80	 /* flag: the first page is also the last one of the buffer before */

/*
 * Offset in its page of the first in a series of packed buffers. A CPU mistakes a load for one of a recent store if
 * both have the same offset in their pages, and users' data mostly starts at the begin of a page, or 16 bytes after it.
 */
#define PACKED_FIRST (2048 + NM_LAYOUT_LINE)

int ivs_bounce_pool_open(struct ivs_home *h)
{
	const struct nm_layout_geometry *g = &h->region->geo;
	struct ivs_bounce_pool *q = &h->pool;

	memset(q, 0, sizeof(*q));
	q->count = (uint32_t) (g->heap / NM_LAYOUT_PAGE);
	q->turn = IVS_POOL_FIRST / NM_LAYOUT_PAGE < q->count ? IVS_POOL_FIRST / NM_LAYOUT_PAGE : q->count;
	q->pages = calloc(q->count, sizeof(*q->pages));
	if (!q->pages)
		return -FI_ENOMEM;
	return ivs_region_take(h->region, h->area, (size_t) q->turn * NM_LAYOUT_PAGE, true);
}

void ivs_bounce_pool_close(struct ivs_home *h)
{
	free(h->pool.pages);
	h->pool.pages = NULL;
}

static uint32_t pages_for(size_t bytes)
{
	return bytes ? (uint32_t) ((bytes + NM_LAYOUT_PAGE - 1) / NM_LAYOUT_PAGE) : 1;
}

/* Returns the number of a buffer's pages. */
static uint32_t pages_of(const struct ivs_bounce_pool *q, uint32_t bounce)
{
	return q->pages[bounce] & (uint8_t) ~SHARED;
}

/* Returns how many pages are free from page at on, up to n. The pool has at least n pages there. */
static uint32_t free_pages(const struct ivs_bounce_pool *q, uint32_t at, uint32_t n)
{
	uint32_t row = 0;
	uint64_t eight;

	for (; n - row >= sizeof(eight); row += sizeof(eight)) {
		memcpy(&eight, q->pages + at + row, sizeof(eight));
		if (eight)
			break;
	}
	while (row < n && !q->pages[at + row])
		row++;
	return row;
}

/* Returns the first of n contiguous free pages, from page at on and before page end, or IVS_NO_BOUNCE. */
static uint32_t find(const struct ivs_bounce_pool *q, uint32_t at, uint32_t end, uint32_t n)
{
	uint32_t row;

	for (; at < end && end - at >= n; at += row + 1) {
		row = free_pages(q, at, n);
		if (row == n)
			return at;
	}
	return IVS_NO_BOUNCE;
}

/*
 * Extends the part of the pool that is used. Returns false if it is the whole pool, or the kernel has no memory for
 * more.
 */
static bool grow(struct ivs_home *h)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t more = q->turn < q->count - q->turn ? q->turn : q->count - q->turn;

	q->taken = 0;
	if (!more || ivs_region_take(h->region, ivs_bounce_at(h, q->turn), (size_t) more * NM_LAYOUT_PAGE, false))
		return false;
	q->turn += more;
	return true;
}

/* Allocates a buffer of n pages from page bounce on. All of them are free except perhaps the first. */
static void take(struct ivs_bounce_pool *q, uint32_t bounce, uint32_t n)
{
	memset(q->pages + bounce, MORE, n);
	q->pages[bounce] = (uint8_t) n;
	q->taken += n;
	q->next = bounce + n;
}

/* Returns the first of n contiguous free pages, directly after the last buffer if possible, or IVS_NO_BOUNCE. */
static uint32_t search(struct ivs_home *h, uint32_t n)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t bounce;

	do {
		bounce = find(q, q->next, q->turn, n);
		if (unlikely(bounce == IVS_NO_BOUNCE)) {
			if (q->taken / IVS_POOL_TURNS >= q->turn)
				grow(h);
			bounce = find(q, 0, q->turn, n);
		}
	} while (unlikely(bounce == IVS_NO_BOUNCE) && grow(h));
	return bounce;
}

uint32_t ivs_bounce_alloc(struct ivs_home *h, size_t bytes)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t n = pages_for(bytes), bounce = search(h, n);

	if (unlikely(bounce == IVS_NO_BOUNCE))
		return bounce;
	take(q, bounce, n);
	q->end = 0;
	return bounce;
}

/* Returns the offset where a buffer may begin after the last one, whose last page it may share, or IVS_NO_BOUNCE. */
static uint32_t behind(const struct ivs_bounce_pool *q, size_t bytes)
{
	uint32_t at = (q->end + NM_LAYOUT_LINE - 1) / NM_LAYOUT_LINE * NM_LAYOUT_LINE + NM_LAYOUT_LINE, page, end;

	if (at % NM_LAYOUT_PAGE == 0)
		at += NM_LAYOUT_LINE;
	page = at / NM_LAYOUT_PAGE;
	end = page + pages_for(at % NM_LAYOUT_PAGE + bytes);
	if (!q->end || end > q->turn || (page < q->next && q->pages[page] && q->pages[page] != MORE))
		return IVS_NO_BOUNCE;
	return free_pages(q, q->next, end - q->next) == end - q->next ? at : IVS_NO_BOUNCE;
}

uint32_t ivs_bounce_seek(struct ivs_home *h, size_t bytes, bool row)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t at = row ? behind(q, bytes) : IVS_NO_BOUNCE, bounce;

	if (at != IVS_NO_BOUNCE)
		return at;
	bounce = search(h, pages_for(PACKED_FIRST + bytes));
	return likely(bounce != IVS_NO_BOUNCE) ? bounce * NM_LAYOUT_PAGE + PACKED_FIRST : IVS_NO_BOUNCE;
}

uint32_t ivs_bounce_pack(struct ivs_home *h, uint32_t at, size_t bytes)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t bounce = at / NM_LAYOUT_PAGE;
	uint8_t shared = q->pages[bounce] ? SHARED : 0;

	take(q, bounce, pages_for(at % NM_LAYOUT_PAGE + bytes));
	q->pages[bounce] |= shared;
	q->end = at + (uint32_t) bytes;
	return bounce;
}

uint32_t ivs_bounce_split(struct ivs_home *h, uint32_t bounce, size_t bytes)
{
	uint8_t *pages = h->pool.pages + bounce;
	uint32_t first = pages_for(bytes);

	pages[first] = (uint8_t) (pages[0] - first);
	pages[0] = (uint8_t) first;
	return bounce + first;
}

bool ivs_bounce_fresh(struct ivs_home *h, uint32_t bounce)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint32_t end = bounce + pages_of(q, bounce);

	if (likely(end <= q->touched))
		return false;
	q->touched = end;
	return true;
}

void ivs_bounce_free(struct ivs_home *h, uint32_t bounce)
{
	struct ivs_bounce_pool *q = &h->pool;
	uint8_t shared = q->pages[bounce] & SHARED, *last;
	uint32_t n = pages_of(q, bounce);

	last = q->pages + bounce + n - 1;
	if (n > 1 && *last != MORE) {
		/* Another buffer begins in the last page. */
		*last &= (uint8_t) ~SHARED;
		n--;
	}
	memset(q->pages + bounce, 0, n);
	if (shared)
		q->pages[bounce] = MORE;
}
