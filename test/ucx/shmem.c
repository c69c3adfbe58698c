/* What OpenSHMEM has, in one program of any number of ranks: says of each part whether its result is right. */
#include <shmem.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 20, ROUNDS = 200 };

static long
	sync_of[SHMEM_REDUCE_SYNC_SIZE > SHMEM_ALLTOALL_SYNC_SIZE ? SHMEM_REDUCE_SYNC_SIZE : SHMEM_ALLTOALL_SYNC_SIZE];
static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 64];
static long lock, counter, flag, value, got, sums[64], parts[64], wrong_here, wrong_all;
static int me, all;
static unsigned char *to, *from;

static unsigned char byte_of(int rank, size_t i)
{
	return (unsigned char) (rank * 37 + i * 11 + (i >> 9));
}

/* Rank 0 says it for all. */
static void said(const char *name, long wrong)
{
	wrong_here = wrong;
	shmem_barrier_all();
	shmem_long_sum_to_all(&wrong_all, &wrong_here, 1, 0, 0, all, work, sync_of);
	if (!me)
		printf("%s %s\n", name, wrong_all ? "wrong" : "right");
	shmem_barrier_all();
}

/* Each rank writes to the next one, and reads from it. */
static void moves(void)
{
	static const size_t sizes[] = { 1, 8, 300, 9000, 70001, MOST };
	int next = (me + 1) % all, before = (me + all - 1) % all;
	long wrong = 0, wrong_get = 0;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		for (size_t i = 0; i < sizes[s]; i++)
			from[i] = byte_of(me, i + s);
		memset(to, 0, sizes[s]);
		shmem_barrier_all();
		shmem_putmem(to, from, sizes[s], next);
		shmem_barrier_all();
		for (size_t i = 0; i < sizes[s]; i++)
			wrong += to[i] != byte_of(before, i + s);
		shmem_barrier_all();
		memset(to, 0, sizes[s]);
		shmem_getmem(to, from, sizes[s], next);
		for (size_t i = 0; i < sizes[s]; i++)
			wrong_get += to[i] != byte_of(next, i + s);
		shmem_barrier_all();
	}
	said("put", wrong);
	said("get", wrong_get);
}

/* What is put before a fence is there before what is put after it. */
static void order(void)
{
	int next = (me + 1) % all;
	long wrong = 0;

	flag = value = 0;
	shmem_barrier_all();
	for (long i = 1; i <= ROUNDS; i++) {
		shmem_long_p(&value, i * 3, next);
		shmem_fence();
		shmem_long_p(&flag, i, next);
		shmem_long_wait_until(&flag, SHMEM_CMP_GE, i);
		wrong += *(volatile long *) &value != i * 3;
		shmem_barrier_all();
	}
	said("fence", wrong);
}

/* All ranks work on one word of rank 0. */
static void atomics(void)
{
	long wrong = 0;

	counter = value = 0;
	shmem_barrier_all();
	for (int i = 0; i < ROUNDS; i++)
		got = shmem_long_atomic_fetch_add(&counter, 1, 0);
	shmem_barrier_all();
	said("fetch_add", !me && counter != (long) all * ROUNDS);
	for (int i = 0; i < ROUNDS; i++) {
		long seen = shmem_long_g(&value, 0);

		for (long was; (was = shmem_long_atomic_compare_swap(&value, seen, seen + 1, 0)) != seen; seen = was)
			;
	}
	shmem_barrier_all();
	said("compare_swap", !me && value != (long) all * ROUNDS);
	flag = me + 100;
	shmem_barrier_all();
	wrong = shmem_long_atomic_swap(&flag, me, (me + 1) % all) != (me + 1) % all + 100;
	shmem_barrier_all();
	said("swap", wrong || flag != (me + all - 1) % all);
}

/* A lock makes a sum right that is not atomic. */
static void locks(void)
{
	counter = 0;
	shmem_barrier_all();
	for (int i = 0; i < ROUNDS / 10; i++) {
		shmem_set_lock(&lock);
		shmem_long_p(&counter, shmem_long_g(&counter, 0) + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	said("lock", !me && counter != (long) all * (ROUNDS / 10));
}

static void collectives(void)
{
	long wrong = 0;

	for (int i = 0; i < 64; i++)
		parts[i] = me * 1000 + i;
	shmem_barrier_all();
	shmem_long_sum_to_all(sums, parts, 64, 0, 0, all, work, sync_of);
	for (int i = 0; i < 64; i++)
		wrong += sums[i] != 1000L * all * (all - 1) / 2 + (long) i * all;
	said("sum_to_all", wrong);
	memset(sums, 0, sizeof(sums));
	shmem_barrier_all();
	shmem_broadcast64(sums, parts, 64, all - 1, 0, 0, all, sync_of);
	wrong = 0;
	for (int i = 0; i < 64 && me != all - 1; i++)
		wrong += sums[i] != (all - 1) * 1000 + i;
	said("broadcast", wrong);
	shmem_alltoall64(sums, parts, 2, 0, 0, all, sync_of);
	wrong = 0;
	for (int r = 0; r < all; r++)
		wrong += sums[2 * r] != r * 1000 + 2 * me || sums[2 * r + 1] != r * 1000 + 2 * me + 1;
	said("alltoall", wrong);
}

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	all = shmem_n_pes();
	to = shmem_malloc(MOST);
	from = shmem_malloc(MOST);
	if (!to || !from || all > 32)
		shmem_global_exit(2);
	for (size_t i = 0; i < sizeof(sync_of) / sizeof(*sync_of); i++)
		sync_of[i] = SHMEM_SYNC_VALUE;
	shmem_barrier_all();
	moves();
	order();
	atomics();
	locks();
	collectives();
	shmem_finalize();
	return wrong_all != 0;
}
