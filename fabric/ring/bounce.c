/*
 * Buffers are taken one behind the other, round the pool. So a byte of it is written again only after all others were.
 * By then it has left the caches of both cores for the one that they share. What is written again sooner is still in
 * the cache of the core that has read it, and each line has to be fetched from there: 4 to 16 KiB in a row had two to three
 * times less bandwidth, and took one and a half times as long (Zen 4).
 * At first only a part of the pool is gone round, since a page that is new costs more than that. It grows with what is sent.
 */
#include "ring/bounce.h"
#include "tune.h"

#define MORE	(IVS_BOUNCE_PAGES_MAX + 1)	/* a page of a buffer, but its first */

int ivs_bounce_pool_open(struct ivs_ep *ep)
{
	const struct nm_layout_geometry *g = &ep->domain->region->geo;
	struct ivs_bounce_pool *q = &ep->pool;

	memset(q, 0, sizeof(*q));
	q->count = (uint32_t) (g->heap / NM_LAYOUT_PAGE);
	q->turn = IVS_POOL_FIRST / NM_LAYOUT_PAGE < q->count ? IVS_POOL_FIRST / NM_LAYOUT_PAGE : q->count;
	q->pages = calloc(q->count, sizeof(*q->pages));
	return q->pages ? 0 : -FI_ENOMEM;
}

void ivs_bounce_pool_close(struct ivs_ep *ep)
{
	free(ep->pool.pages);
	ep->pool.pages = NULL;
}

static uint32_t pages_for(size_t bytes)
{
	return bytes ? (uint32_t) ((bytes + NM_LAYOUT_PAGE - 1) / NM_LAYOUT_PAGE) : 1;
}

/* The first of n free pages in a row, from page at on and before page end. */
static uint32_t find(const struct ivs_bounce_pool *q, uint32_t at, uint32_t end, uint32_t n)
{
	uint32_t row = 0;
	uint64_t eight;

	while (at < end) {
		/* Most pages are free: eight at once. */
		if (n - row >= sizeof(eight) && end - at >= sizeof(eight)) {
			memcpy(&eight, q->pages + at, sizeof(eight));
			if (!eight) {
				row += sizeof(eight);
				at += sizeof(eight);
				if (row == n)
					return at - n;
				continue;
			}
		}
		row = q->pages[at++] ? 0 : row + 1;
		if (row == n)
			return at - n;
	}
	return IVS_NO_BOUNCE;
}

/* More pages are gone round from now on. false: all are. */
static bool grow(struct ivs_bounce_pool *q)
{
	if (q->turn == q->count)
		return false;
	q->turn = 2 * q->turn < q->count ? 2 * q->turn : q->count;
	q->taken = 0;
	return true;
}

uint32_t ivs_bounce_alloc(struct ivs_ep *ep, size_t bytes)
{
	struct ivs_bounce_pool *q = &ep->pool;
	uint32_t n = pages_for(bytes), bounce;

	do {
		bounce = find(q, q->next, q->turn, n);
		if (unlikely(bounce == IVS_NO_BOUNCE)) {
			if (q->taken / IVS_POOL_TURNS >= q->turn)
				grow(q);
			bounce = find(q, 0, q->turn, n);
		}
	} while (unlikely(bounce == IVS_NO_BOUNCE) && grow(q));
	if (unlikely(bounce == IVS_NO_BOUNCE))
		return bounce;
	memset(q->pages + bounce, MORE, n);
	q->pages[bounce] = (uint8_t) n;
	q->taken += n;
	q->next = bounce + n;
	return bounce;
}

void ivs_bounce_trim(struct ivs_ep *ep, uint32_t bounce, size_t bytes)
{
	struct ivs_bounce_pool *q = &ep->pool;
	uint32_t n = q->pages[bounce], left = pages_for(bytes);

	if (left >= n)
		return;
	memset(q->pages + bounce + left, 0, n - left);
	q->pages[bounce] = (uint8_t) left;
	q->taken -= n - left;
	if (q->next == bounce + n)
		q->next = bounce + left;
}

uint32_t ivs_bounce_split(struct ivs_ep *ep, uint32_t bounce, size_t bytes)
{
	uint8_t *pages = ep->pool.pages + bounce;
	uint32_t first = pages_for(bytes);

	pages[first] = (uint8_t) (pages[0] - first);
	pages[0] = (uint8_t) first;
	return bounce + first;
}

bool ivs_bounce_fresh(struct ivs_ep *ep, uint32_t bounce)
{
	struct ivs_bounce_pool *q = &ep->pool;
	uint32_t end = bounce + q->pages[bounce];

	if (likely(end <= q->touched))
		return false;
	q->touched = end;
	return true;
}

void ivs_bounce_free(struct ivs_ep *ep, uint32_t bounce)
{
	struct ivs_bounce_pool *q = &ep->pool;

	memset(q->pages + bounce, 0, q->pages[bounce]);
}
