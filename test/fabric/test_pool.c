/* A rank's bounce buffers: their places, that none overlaps another, and the behavior of a full pool. */
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "check.h"
#include "region/region.h"
#include "ring/bounce.h"
#include "tune.h"

enum {
	PAGE = NM_LAYOUT_PAGE,
	LARGEST = 128 << 10,
	MOST = 33,
	PAGES = NM_LAYOUT_POOL_MOST / PAGE,
	FIRST = IVS_POOL_FIRST / PAGE
};

static size_t room = SIZE_MAX; /* bytes available on the region's file system */

int ivs_region_take(const struct ivs_region *r, const void *at, size_t len, bool warn)
{
	(void) r;
	(void) at;
	(void) warn;
	if (len > room)
		return -FI_ENOSPC;
	room -= len;
	return 0;
}

static struct ivs_region region;
static struct ivs_home home = { .region = &region };
static uint8_t owner[PAGES]; /* per page: the buffer that has it */

static void open_pool(size_t bytes)
{
	region.geo.heap = bytes;
	CHECK(!ivs_bounce_pool_open(&home));
	memset(owner, 0, sizeof(owner));
}

static void close_pool(void)
{
	ivs_bounce_pool_close(&home);
}

/* Returns the pages of a buffer of that many bytes, at least. */
static uint32_t pages(size_t bytes)
{
	return bytes ? (uint32_t) ((bytes + PAGE - 1) / PAGE) : 1;
}

/* Assigns pages to who. They must have been assigned to before. */
static void mark(uint32_t bounce, uint32_t count, uint8_t before, uint8_t who)
{
	for (uint32_t i = bounce; i < bounce + count; i++) {
		CHECK(i < PAGES && owner[i] == before);
		owner[i] = who;
	}
}

/* Returns true if the pool's first count pages contain a run of that many free pages. */
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

/* Buffers that are freed at once follow each other around the pool, which grows after a number of rounds. */
static void goes_round(void)
{
	uint32_t end = 0, turn = FIRST, taken = 0, fresh = 0;

	open_pool(NM_LAYOUT_POOL_MOST);
	for (long n = 0; n < 4L * IVS_POOL_TURNS * PAGES; n++) {
		uint32_t bounce = ivs_bounce_alloc(&home, 2 * PAGE);

		if (bounce != end) {
			CHECK(bounce == 0 && end == turn);
			/* The pool grows with the next round. */
			if (taken >= IVS_POOL_TURNS * turn && turn < PAGES) {
				turn *= 2;
				turn = turn < PAGES ? turn : PAGES;
				taken = 0;
			}
		}
		fresh += ivs_bounce_fresh(&home, bounce);
		CHECK(!ivs_bounce_fresh(&home, bounce));
		end = bounce + 2;
		taken += 2;
		ivs_bounce_free(&home, bounce);
	}
	CHECK(turn == PAGES && fresh == PAGES / 2);
	close_pool();
}

/* Buffers that are not freed stay intact, and the whole pool is available at once to a caller that does not wait. */
static void fills(size_t bytes)
{
	uint32_t count = (uint32_t) (bytes / PAGE), n, *all = calloc(count, sizeof(*all));

	CHECK(all != NULL);
	open_pool(bytes);
	for (n = 0; n < count; n++) {
		all[n] = ivs_bounce_alloc(&home, 1);
		mark(all[n], 1, 0, 1);
	}
	CHECK(ivs_bounce_alloc(&home, 1) == IVS_NO_BOUNCE && ivs_bounce_alloc(&home, LARGEST) == IVS_NO_BOUNCE);
	/* Every second page is free: a buffer of two does not fit. */
	for (n = 0; n < count; n += 2)
		ivs_bounce_free(&home, all[n]);
	CHECK(ivs_bounce_alloc(&home, PAGE + 1) == IVS_NO_BOUNCE);
	CHECK(ivs_bounce_alloc(&home, PAGE) != IVS_NO_BOUNCE);
	close_pool();
	free(all);
}

/* A buffer of any_order(). */
struct buffer {
	uint32_t bounce, pages;
	uint32_t line, lines; /* lines of the pool, which no other buffer has */
};

enum { LINES = PAGE / NM_LAYOUT_LINE };

static uint16_t line_owner[PAGES * LINES];

/* Assigns lines and pages of the pool to who; 0: to nobody. They must have been assigned to before. */
static void set_owner(const struct buffer *b, uint16_t before, uint16_t who)
{
	for (uint32_t i = b->line; i < b->line + b->lines; i++) {
		CHECK(i < PAGES * LINES && line_owner[i] == before);
		line_owner[i] = who;
	}
	/* The number of buffers on a page: at most two share it. */
	for (uint32_t i = b->bounce; i < b->bounce + b->pages; i++) {
		owner[i] = (uint8_t) (who ? owner[i] + 1 : owner[i] - 1);
		CHECK(owner[i] <= 2);
	}
}

/* Allocates a packed buffer, mostly for less than was sought. Returns false without room. */
static bool pack(struct buffer *b, size_t len, bool row)
{
	uint32_t at = ivs_bounce_seek(&home, len, row), end;

	if (at == IVS_NO_BOUNCE)
		return false;
	CHECK(at % PAGE && !(at % NM_LAYOUT_LINE));
	if (random() % 4)
		len = 1 + (size_t) random() % len;
	end = at + (uint32_t) len;
	b->bounce = ivs_bounce_pack(&home, at, len);
	CHECK(b->bounce == at / PAGE);
	b->pages = (end - 1) / PAGE + 1 - b->bounce;
	b->line = at / NM_LAYOUT_LINE - 1;
	b->lines = (end + NM_LAYOUT_LINE - 1) / NM_LAYOUT_LINE - b->line;
	return true;
}

/* Buffers of all lengths, also packed, shortened and split ones, freed in any order. */
static void any_order(size_t bytes, unsigned int seed)
{
	enum { LIVE = 100 };
	struct buffer live[LIVE] = { { 0 } };
	uint32_t count = (uint32_t) (bytes / PAGE), shared = 0;

	srandom(seed);
	open_pool(bytes);
	memset(line_owner, 0, sizeof(line_owner));
	for (int n = 0; n < 200000; n++) {
		/* Often free entries, so that buffers follow each other. */
		int i = (int) (n % 3 ? n % LIVE : random() % LIVE), k = (i + 1) % LIVE;
		size_t len = 1 + (size_t) random() % (random() % 3 ? 2 * PAGE : LARGEST + PAGE);
		struct buffer *b = &live[i], *next = &live[k];

		if (b->pages) {
			set_owner(b, (uint16_t) (i + 1), 0);
			ivs_bounce_free(&home, b->bounce);
			b->pages = 0;
			continue;
		}
		if (random() % 2) {
			if (!pack(b, len, random() % 8)) {
				CHECK(!has_room(count, pages(len + PAGE / 2 + NM_LAYOUT_LINE)));
				continue;
			}
			shared += owner[b->bounce];
			set_owner(b, 0, (uint16_t) (i + 1));
			continue;
		}
		b->bounce = ivs_bounce_alloc(&home, len);
		if (b->bounce == IVS_NO_BOUNCE) {
			CHECK(!has_room(count, pages(len)));
			continue;
		}
		b->pages = pages(len);
		b->line = b->bounce * LINES;
		b->lines = b->pages * LINES;
		CHECK(b->pages <= MOST && b->bounce + b->pages <= count);
		set_owner(b, 0, (uint16_t) (i + 1));
		if (random() % 2 && b->pages > 1 && !next->pages) {
			uint32_t first = 1 + (uint32_t) random() % (b->pages - 1);

			next->bounce = ivs_bounce_split(&home, b->bounce, first * (size_t) PAGE);
			CHECK(next->bounce == b->bounce + first);
			next->pages = b->pages - first;
			next->line = next->bounce * LINES;
			next->lines = next->pages * LINES;
			b->pages = first;
			b->lines = first * LINES;
			for (uint32_t l = next->line; l < next->line + next->lines; l++)
				line_owner[l] = (uint16_t) (k + 1);
		}
	}
	CHECK(shared > 100);
	close_pool();
}

/* While the file system has no room, the pool does not grow. */
static void no_memory(void)
{
	enum { BUFFER = IVS_POOL_FIRST / 4 };

	room = IVS_POOL_FIRST - 1;
	region.geo.heap = NM_LAYOUT_POOL_MOST;
	CHECK(ivs_bounce_pool_open(&home) == -FI_ENOSPC);
	close_pool();
	room = IVS_POOL_FIRST;
	open_pool(NM_LAYOUT_POOL_MOST);
	for (int i = 0; i < 4; i++)
		CHECK(ivs_bounce_alloc(&home, BUFFER) != IVS_NO_BOUNCE);
	CHECK(ivs_bounce_alloc(&home, BUFFER) == IVS_NO_BOUNCE);
	room = SIZE_MAX;
	CHECK(ivs_bounce_alloc(&home, BUFFER) != IVS_NO_BOUNCE);
	close_pool();
}

int main(void)
{
	goes_round();
	no_memory();
	fills(NM_LAYOUT_POOL_MOST);
	fills(LARGEST);
	for (unsigned int seed = 1; seed <= 4; seed++) {
		any_order(NM_LAYOUT_POOL_MOST, seed);
		any_order(2 * LARGEST, seed);
	}
	return 0;
}
