/* What the machine can do at most. */
#include "pair.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../../../fabric/ring/copy.h"

#define CHUNK  8192UL
#define CHUNKS (sizeof(common->bounce) / CHUNK)

static uint8_t src[METER_LARGEST], dst[METER_LARGEST];

static void balls(uint64_t (*ball)[16], uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		if (rank == 0) {
			__atomic_store_n(&ball[0][0], i, __ATOMIC_RELEASE);
			while (__atomic_load_n(&ball[1][0], __ATOMIC_ACQUIRE) != i)
				;
		} else {
			while (__atomic_load_n(&ball[0][0], __ATOMIC_ACQUIRE) != i)
				;
			__atomic_store_n(&ball[1][0], i, __ATOMIC_RELEASE);
		}
	}
}

/*
 * A word that goes back and forth in one cache line each way: the median over lines, since
 * how long one takes depends on where in the cache it has its place. n: rounds on a line.
 */
static void pingpong(uint64_t n)
{
	double each[PAIR_LINES], t;

	for (int l = 0; l < PAIR_LINES; l++) {
		balls(common->ball[l], 1, n / 8);
		meet();
		t = meter_now();
		balls(common->ball[l], n / 8, n / 8 + n);
		each[l] = (meter_now() - t) / (double) n / 2;
	}
	if (rank == 0)
		meter_print("latency", 8, meter_median(each, PAIR_LINES));
}

static double one_copy(size_t len, long count)
{
	double t = meter_now();

	for (long i = 0; i < count; i++)
		ivs_copy(dst, src, len);
	return (meter_now() - t) / (double) count;
}

/* Rank 0 fills 1 MiB of chunks, rank 1 empties them at the same time. */
static void two_copies(size_t len, long count)
{
	size_t part, at, slot;
	uint64_t done = common->chunks[rank][0];

	for (long i = 0; i < count; i++)
		for (at = 0; at < len; at += part, done++) {
			part = len - at < CHUNK ? len - at : CHUNK;
			slot = done % CHUNKS * CHUNK;
			if (rank == 0) {
				while (done - __atomic_load_n(&common->chunks[1][0], __ATOMIC_ACQUIRE) >= CHUNKS)
					;
				ivs_copy(common->bounce + slot, src + at, part);
			} else {
				while (__atomic_load_n(&common->chunks[0][0], __ATOMIC_ACQUIRE) == done)
					;
				ivs_copy(dst + at, common->bounce + slot, part);
			}
			__atomic_store_n(&common->chunks[rank][0], done + 1, __ATOMIC_RELEASE);
		}
}

/* The kernel copies from rank 0 to rank 1. */
static void cma(size_t len, long count)
{
	struct iovec l = { dst, len }, r = { (void *) (uintptr_t) common->word, len };

	for (long i = 0; rank && i < count; i++)
		if (process_vm_readv(getppid(), &l, 1, &r, 1, 0) != (ssize_t) len)
			common->key = 1;
}

static double slices(void (*turn)(size_t, long), size_t len, long count)
{
	double each[METER_SLICES], t;

	for (int s = -1; s < METER_SLICES; s++) {
		meet();
		t = meter_now();
		turn(len, count);
		meet();
		if (s >= 0)
			each[s] = (meter_now() - t) / (double) count;
	}
	return meter_median(each, METER_SLICES);
}

/* 33 lines of 288 rounds: 5 ms where a round takes 0.5 us. */
void limits_pingpong(void)
{
	meter_realtime();
	pingpong(256);
}

void limits(void)
{
	double each[METER_SLICES], t;
	long count;
	size_t len;

	ivs_copy_init();
	memset(src, 1, sizeof(src));
	memset(dst, 2, sizeof(dst));
	if (rank == 0)
		common->word = (uintptr_t) src;
	meter_realtime();
	pingpong(4000);
	for (int i = 0; i < meter_bandwidth_count; i++) {
		len = meter_bandwidth_sizes[i];
		count = (long) ((32UL << 20) / len);
		meet();
		if (rank == 0) {
			one_copy(len, 1);
			for (int s = 0; s < METER_SLICES; s++)
				each[s] = one_copy(len, count);
			meter_print("copy", len, (double) len / meter_median(each, METER_SLICES) / 1e3);
		}
		t = slices(two_copies, len, count);
		if (rank == 0)
			meter_print("copies", len, (double) len / t / 1e3);
		t = slices(cma, len, count);
		if (rank == 0 && !common->key)
			meter_print("kernel", len, (double) len / t / 1e3);
	}
}
