/* Tests when the agent counts the inodes that the VM knows, and when it drops its caches. */
#include "../inodes.h"

#include <stdio.h>

static const uint64_t ms = 1000000;
static int failures;

#define CHECK(c) \
	do { \
		if (!(c)) { \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #c); \
			failures++; \
		} \
	} while (0)

/* With a small limit the caches stay warm below half of it, and are dropped at half. */
static void small(void)
{
	struct inodes i;

	inodes_init(&i, 20000);
	CHECK(inodes_count(&i, 0) > 0);
	CHECK(inodes_count(&i, 9999) > 0);
	CHECK(inodes_count(&i, 9999) <= 100 * ms);
	CHECK(inodes_count(&i, 10000) == 0);
	inodes_dropped(&i, 500);
	CHECK(i.bound == 10000);
	CHECK(inodes_count(&i, 0) >= INODES_LEAST && inodes_count(&i, 0) <= INODES_MOST);
}

/* Programs open new files, come inodes/s, and drops last ms_drop: the limit is never reached. */
static void programs(uint64_t limit, uint64_t come, uint64_t ms_drop)
{
	struct inodes i;
	uint64_t n = 0, most = 0, wait, drops = 0;

	inodes_init(&i, limit);
	for (uint64_t at = 1; at < 60000 * ms; at += wait) {
		wait = inodes_count(&i, n);
		if (!wait) {
			drops++;
			at += ms_drop * ms;
			n = come * ms_drop / 1000; /* inodes added during the drop */
			wait = inodes_dropped(&i, n);
		}
		n += come * (wait / ms) / 1000;
		most = n > most ? n : most;
	}
	if (most >= limit)
		fprintf(stderr, "limit %llu, %llu/s, drops of %llu ms: %llu inodes\n", (unsigned long long) limit,
			(unsigned long long) come, (unsigned long long) ms_drop, (unsigned long long) most);
	CHECK(most < limit);
	CHECK(drops > 0 && drops <= 60 * come / (limit / 2 - come * ms_drop / 1000) + 1);
}

/* If most inodes are in use they are not dropped repeatedly, nor later than possible. */
static void in_use(void)
{
	struct inodes i;

	inodes_init(&i, 20000);
	CHECK(inodes_count(&i, 12000) == 0);
	inodes_dropped(&i, 11000);
	CHECK(i.bound > 11000 && i.bound < 15500);
	CHECK(inodes_count(&i, 11100) > 0);
	for (uint64_t n = 11000; n < 30000; n += 1000) {
		inodes_dropped(&i, n);
		CHECK(i.bound > n);
		CHECK(inodes_count(&i, n) >= INODES_LEAST);
	}
	/* When the files are closed again, the bound returns. */
	inodes_dropped(&i, 100);
	CHECK(i.bound == 10000);
}

int main(void)
{
	small();
	for (uint64_t limit = 16384; limit <= 40000; limit += 3616)
		for (uint64_t come = 1000; come <= 64000; come *= 2)
			programs(limit, come, 50);
	programs(524288, 100000, 500);
	in_use();
	return failures != 0;
}
