/* A rank's bounce buffers: where they are, that none overlaps another, and what their pool does when it is full. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "region/region.h"
#include "ring/bounce.h"

enum { PAGE = NM_LAYOUT_PAGE, LARGEST = 128 << 10, MOST = 33, PAGES = NM_LAYOUT_POOL_MOST / PAGE, FIRST = IVS_POOL_FIRST / PAGE };

static struct ivs_region region;
static struct ivs_domain domain = { .region = &region };
static struct ivs_ep ep = { .domain = &domain };
static uint8_t owner[PAGES];	/* of each page: the buffer that has it */

static void open_pool(size_t bytes)
{
	region.geo.heap = bytes;
	CHECK(!ivs_bounce_pool_open(&ep));
	memset(owner, 0, sizeof(owner));
}

static void close_pool(void)
{
	ivs_bounce_pool_close(&ep);
}

/* The pages that a buffer of that many bytes has, at least. */
static uint32_t pages(size_t bytes)
{
	return bytes ? (uint32_t) ((bytes + PAGE - 1) / PAGE) : 1;
}

/* Marks pages as who's, or as nobody's. They must have been the other before. */
static void mark(uint32_t bounce, uint32_t count, uint8_t before, uint8_t who)
{
	for (uint32_t i = bounce; i < bounce + count; i++) {
		CHECK(i < PAGES && owner[i] == before);
		owner[i] = who;
	}
}

/* Is there a run of that many pages that nobody has, of the pool's first count? */
static bool has_room(uint32_t count, uint32_t run)
{
	uint32_t row = 0;

	for (uint32_t i = 0; i < count; i++) {
		row = owner[i] ? 0 : row + 1;
		if (row == run)
			return true;
	}
	return false;
}

/* Buffers that are freed at once follow each other, round a pool that grows when it has been gone round often enough. */
static void goes_round(void)
{
	uint32_t end = 0, turn = FIRST, taken = 0, fresh = 0;

	open_pool(NM_LAYOUT_POOL_MOST);
	for (long n = 0; n < 4L * IVS_POOL_TURNS * PAGES; n++) {
		uint32_t bounce = ivs_bounce_alloc(&ep, 2 * PAGE);

		if (bounce != end) {
			CHECK(bounce == 0 && end == turn);
			/* What was beyond is taken as soon as the turn after it. */
			if (taken >= IVS_POOL_TURNS * turn && turn < PAGES) {
				turn *= 2;
				turn = turn < PAGES ? turn : PAGES;
				taken = 0;
			}
		}
		fresh += ivs_bounce_fresh(&ep, bounce);
		CHECK(!ivs_bounce_fresh(&ep, bounce));
		end = bounce + 2;
		taken += 2;
		ivs_bounce_free(&ep, bounce);
	}
	CHECK(turn == PAGES && fresh == PAGES / 2);
	close_pool();
}

/* What nobody frees is left alone, and all of the pool is there at once for those who do not wait. */
static void fills(size_t bytes)
{
	uint32_t count = (uint32_t) (bytes / PAGE), n, *all = calloc(count, sizeof(*all));

	CHECK(all != NULL);
	open_pool(bytes);
	for (n = 0; n < count; n++) {
		all[n] = ivs_bounce_alloc(&ep, 1);
		mark(all[n], 1, 0, 1);
	}
	CHECK(ivs_bounce_alloc(&ep, 1) == IVS_NO_BOUNCE && ivs_bounce_alloc(&ep, LARGEST) == IVS_NO_BOUNCE);
	/* Each second page: none of two fits. */
	for (n = 0; n < count; n += 2)
		ivs_bounce_free(&ep, all[n]);
	CHECK(ivs_bounce_alloc(&ep, PAGE + 1) == IVS_NO_BOUNCE);
	CHECK(ivs_bounce_alloc(&ep, PAGE) != IVS_NO_BOUNCE);
	close_pool();
	free(all);
}

/* Buffers of all lengths, cut short, split and freed in any order. */
static void any_order(size_t bytes, unsigned int seed)
{
	enum { LIVE = 100 };
	struct {
		uint32_t bounce, pages;
	} live[LIVE] = { { 0 } };
	uint32_t count = (uint32_t) (bytes / PAGE);

	srandom(seed);
	open_pool(bytes);
	for (int n = 0; n < 200000; n++) {
		int i = (int) (random() % LIVE);
		size_t len = (size_t) random() % (random() % 3 ? 2 * PAGE : LARGEST + PAGE), left;

		if (live[i].pages) {
			mark(live[i].bounce, live[i].pages, (uint8_t) (i + 1), 0);
			ivs_bounce_free(&ep, live[i].bounce);
			live[i].pages = 0;
			continue;
		}
		live[i].bounce = ivs_bounce_alloc(&ep, len);
		if (live[i].bounce == IVS_NO_BOUNCE) {
			CHECK(!has_room(count, pages(len)));
			continue;
		}
		live[i].pages = pages(len);
		CHECK(live[i].pages <= MOST && live[i].bounce + live[i].pages <= count);
		mark(live[i].bounce, live[i].pages, 0, (uint8_t) (i + 1));
		if (random() % 2 && len) {
			left = (size_t) random() % len + 1;
			ivs_bounce_trim(&ep, live[i].bounce, left);
			mark(live[i].bounce + pages(left), live[i].pages - pages(left), (uint8_t) (i + 1), 0);
			live[i].pages = pages(left);
		} else if (random() % 2 && live[i].pages > 1 && !live[(i + 1) % LIVE].pages) {
			int k = (i + 1) % LIVE;
			uint32_t first = 1 + (uint32_t) random() % (live[i].pages - 1);

			live[k].bounce = ivs_bounce_split(&ep, live[i].bounce, first * (size_t) PAGE);
			CHECK(live[k].bounce == live[i].bounce + first);
			live[k].pages = live[i].pages - first;
			live[i].pages = first;
			mark(live[k].bounce, live[k].pages, (uint8_t) (i + 1), (uint8_t) (k + 1));
		}
	}
	close_pool();
}

int main(void)
{
	goes_round();
	fills(NM_LAYOUT_POOL_MOST);
	fills(LARGEST);
	for (unsigned int seed = 1; seed <= 4; seed++) {
		any_order(NM_LAYOUT_POOL_MOST, seed);
		any_order(2 * LARGEST, seed);
	}
	return 0;
}
