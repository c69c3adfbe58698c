/* Epochs in which the target does not participate, and accumulates: locks, flushes, requests, order. */
#include <stdlib.h>
#include <string.h>

#include "epochs.h"

static uint64_t load(struct job *j, int s)
{
	uint64_t v;

	DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, j->rank, 0, j->win));
	memcpy(&v, j->base + spare(j, s), sizeof(v));
	DO(MPI_Win_unlock(j->rank, j->win));
	return v;
}

static void get_word(struct job *j, uint64_t *to, int from, MPI_Aint where)
{
	MPI_Get(to, 1, MPI_UINT64_T, from, where, 1, MPI_UINT64_T, j->win);
}

static void put_word(struct job *j, const uint64_t *from, int to, MPI_Aint where)
{
	MPI_Put(from, 1, MPI_UINT64_T, to, where, 1, MPI_UINT64_T, j->win);
}

/* Two counters, a remote and a local one, which are equal for the rank that holds the lock. */
static bool exclusive(struct job *j)
{
	uint64_t all = (uint64_t) j->ranks * (uint64_t) j->rounds;
	bool ok = true;

	for (long k = 0; k < j->rounds * j->ranks; k++) {
		int to = (int) ((j->rank + k) % j->ranks);
		uint64_t a = 0, b = 1;

		DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, j->win));
		if (to == j->rank) {
			uint64_t *mine = j->base + spare(j, FIRST);

			ok = ok && mine[0] == mine[1];
			mine[0]++;
			mine[1]++;
		} else {
			get_word(j, &a, to, spare(j, FIRST));
			get_word(j, &b, to, spare(j, SECOND));
			DO(MPI_Win_flush(to, j->win));
			ok = ok && a == b;
			a++;
			b++;
			put_word(j, &a, to, spare(j, FIRST));
			put_word(j, &b, to, spare(j, SECOND));
		}
		DO(MPI_Win_unlock(to, j->win));
	}
	DO(MPI_Barrier(j->comm));
	return load(j, FIRST) == all && load(j, SECOND) == all && ok;
}

/* Readers see a block as one writer left it, and never an older one after a newer one. */
static bool shared(struct job *j)
{
	uint64_t last = 0;
	bool ok = true;

	for (long k = 1; k <= j->rounds; k++) {
		for (int to = 0; to < j->ranks; to++) {
			if (j->rank == 0) {
				for (size_t i = 0; i < j->count; i++)
					j->block[i] = (uint64_t) k;
				DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, j->win));
				put(j, to);
				DO(MPI_Win_unlock(to, j->win));
				continue;
			}
			DO(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, j->win));
			MPI_Get(j->block, (int) j->count, MPI_UINT64_T, to, at(j, 0), (int) j->count, MPI_UINT64_T,
				j->win);
			DO(MPI_Win_unlock(to, j->win));
			for (size_t i = 0; i < j->count; i++)
				ok = ok && j->block[i] == j->block[0];
			/* The writer is at this target's round or at an earlier target. */
			if (to == 0) {
				ok = ok && j->block[0] >= last;
				last = j->block[0];
			}
		}
	}
	return ok;
}

/* Locks of all targets at a time, acquired in the order of ranks. */
static bool several(struct job *j)
{
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		uint64_t *v = allocate((size_t) j->ranks * 8);

		for (int to = 0; to < j->ranks; to++)
			DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, j->win));
		for (int to = 0; to < j->ranks; to++)
			get_word(j, &v[to], to, spare(j, FIRST));
		for (int to = j->ranks - 1; to >= 0; to--)
			DO(MPI_Win_flush_local(to, j->win));
		for (int to = 1; to < j->ranks; to++)
			ok = ok && v[to] == v[0];
		for (int to = 0; to < j->ranks; to++) {
			v[to]++;
			put_word(j, &v[to], to, spare(j, FIRST));
		}
		for (int to = j->ranks - 1; to >= 0; to--)
			DO(MPI_Win_unlock(to, j->win));
		free(v);
	}
	DO(MPI_Barrier(j->comm));
	return load(j, FIRST) == (uint64_t) j->ranks * (uint64_t) j->rounds && ok;
}

/* Locks that are known to be free, followed by some that are not. */
static bool nolock(struct job *j)
{
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		fill(j, (uint64_t) k);
		if (k % 2)
			DO(MPI_Win_lock_all(MPI_MODE_NOCHECK, j->win));
		else
			DO(MPI_Win_lock(MPI_LOCK_SHARED, right_of(j), MPI_MODE_NOCHECK, j->win));
		put(j, right_of(j));
		if (k % 2)
			DO(MPI_Win_unlock_all(j->win));
		else
			DO(MPI_Win_unlock(right_of(j), j->win));
		DO(MPI_Barrier(j->comm));
		DO(MPI_Win_lock(MPI_LOCK_SHARED, j->rank, MPI_MODE_NOCHECK, j->win));
		ok = ok && same(j, j->base + at(j, left_of(j)), left_of(j), (uint64_t) k);
		DO(MPI_Win_unlock(j->rank, j->win));
		DO(MPI_Barrier(j->comm));
	}
	for (int by = 0; by < j->ranks; by++) {
		int to = (j->rank + by) % j->ranks;

		DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, j->win));
		DO(MPI_Win_unlock(to, j->win));
	}
	return ok;
}

/*
 * Data completed by a flush is in the target's memory before a message sent after the flush arrives; after a local
 * flush the buffer is free.
 */
static bool flush(struct job *j)
{
	bool ok = true;

	DO(MPI_Win_lock_all(0, j->win));
	for (long k = 0; k < 4 * j->rounds; k++) {
		fill(j, (uint64_t) k);
		put(j, right_of(j));
		if (k % 4 == 0) {
			DO(MPI_Win_flush(right_of(j), j->win));
		} else if (k % 4 == 1) {
			DO(MPI_Win_flush_all(j->win));
		} else {
			if (k % 4 == 2)
				DO(MPI_Win_flush_local(right_of(j), j->win));
			else
				DO(MPI_Win_flush_local_all(j->win));
			memset(j->block, 0xff, j->count * 8);
			DO(MPI_Win_flush(right_of(j), j->win));
		}
		DO(MPI_Sendrecv(NULL, 0, MPI_INT, right_of(j), 1, NULL, 0, MPI_INT, left_of(j), 1, j->comm,
				MPI_STATUS_IGNORE));
		DO(MPI_Win_sync(j->win));
		ok = ok && same(j, j->base + at(j, left_of(j)), left_of(j), (uint64_t) k);
		DO(MPI_Sendrecv(NULL, 0, MPI_INT, left_of(j), 1, NULL, 0, MPI_INT, right_of(j), 1, j->comm,
				MPI_STATUS_IGNORE));
	}
	DO(MPI_Win_unlock_all(j->win));
	return ok;
}

static bool request(struct job *j)
{
	size_t all = (size_t) j->ranks * (size_t) j->rounds;
	uint64_t one = 1, *tickets = allocate(all * 8), *seen = allocate(all * 8),
		 *drawn = allocate((size_t) j->ranks * 8);
	MPI_Request *r = allocate(2 * (size_t) j->ranks * sizeof(*r)), q;
	bool ok = true;

	DO(MPI_Win_lock_all(0, j->win));
	for (long k = 0; k < j->rounds; k++) {
		int to = (int) ((j->rank + k) % j->ranks);

		fill(j, (uint64_t) k);
		MPI_Rput(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T,
			 j->win, &q);
		DO(MPI_Wait(&q, MPI_STATUS_IGNORE));
		memset(j->block, 0xff, j->count * 8);
		DO(MPI_Win_flush(to, j->win));
		MPI_Rget(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T,
			 j->win, &q);
		DO(MPI_Wait(&q, MPI_STATUS_IGNORE));
		ok = ok && same(j, j->block, j->rank, (uint64_t) k);
		for (int t = 0; t < j->ranks; t++) {
			MPI_Raccumulate(&one, 1, MPI_UINT64_T, t, spare(j, FIRST), 1, MPI_UINT64_T, MPI_SUM, j->win,
					&r[2 * t]);
			MPI_Rget_accumulate(&one, 1, MPI_UINT64_T, &drawn[t], 1, MPI_UINT64_T, t, spare(j, SECOND), 1,
					    MPI_UINT64_T, MPI_SUM, j->win, &r[2 * t + 1]);
		}
		for (int t = 0; t < 2 * j->ranks; t++) /* MPICH's MPI_STATUSES_IGNORE makes gcc 12 warn */
			DO(MPI_Wait(&r[t], MPI_STATUS_IGNORE));
		if (drawn[0] < all)
			tickets[drawn[0]]++;
		else
			ok = false;
	}
	DO(MPI_Win_unlock_all(j->win));
	/* Each ticket of rank 0 was drawn once. */
	DO(MPI_Allreduce(tickets, seen, (int) all, MPI_UINT64_T, MPI_SUM, j->comm));
	for (size_t i = 0; i < all; i++)
		ok = ok && seen[i] == 1;
	ok = load(j, FIRST) == all && load(j, SECOND) == all && ok;
	free(tickets);
	free(seen);
	free(drawn);
	free(r);
	return ok;
}

/*
 * Accumulates of one origin to one location are applied in the order of their calls, for any kind and length, without
 * a flush in between.
 */
static bool order(struct job *j)
{
	enum { READ, ADDED, SWAPPED, AFTER, LAST, RESULTS };
	size_t n = (size_t) (j->rounds < 20 ? j->rounds : 20);
	uint64_t *sent = allocate(n * j->count * 8), (*got)[RESULTS] = allocate(n * sizeof(*got)),
		 *expect = allocate(2 * n * 8);
	uint64_t three = 3, five = 5, none = 0;
	bool ok = true;

	DO(MPI_Win_lock_all(0, j->win));
	for (int by = 0; by < j->ranks; by++) {
		int to = (j->rank + by) % j->ranks;
		MPI_Aint first = at(j, j->rank), last = first + (MPI_Aint) j->count - 1;

		for (size_t k = 0; k < n; k++) {
			uint64_t *block = sent + k * j->count, start = 1000 * (k + 1);

			for (size_t i = 0; i < j->count; i++)
				block[i] = start + i;
			expect[2 * k] = start + 8;
			expect[2 * k + 1] = start + 100;
			MPI_Accumulate(block, (int) j->count, MPI_UINT64_T, to, first, (int) j->count, MPI_UINT64_T,
				       MPI_REPLACE, j->win);
			MPI_Accumulate(&three, 1, MPI_UINT64_T, to, first, 1, MPI_UINT64_T, MPI_SUM, j->win);
			MPI_Get_accumulate(&none, 0, MPI_UINT64_T, &got[k][READ], 1, MPI_UINT64_T, to, first, 1,
					   MPI_UINT64_T, MPI_NO_OP, j->win);
			MPI_Fetch_and_op(&five, &got[k][ADDED], MPI_UINT64_T, to, first, MPI_SUM, j->win);
			MPI_Compare_and_swap(&expect[2 * k + 1], &expect[2 * k], &got[k][SWAPPED], MPI_UINT64_T, to,
					     first, j->win);
			MPI_Fetch_and_op(&none, &got[k][AFTER], MPI_UINT64_T, to, first, MPI_NO_OP, j->win);
			MPI_Fetch_and_op(&three, &got[k][LAST], MPI_UINT64_T, to, last, MPI_SUM, j->win);
		}
		DO(MPI_Win_flush(to, j->win));
		for (size_t k = 0; k < n; k++) {
			uint64_t start = 1000 * (k + 1);

			ok = ok && got[k][READ] == start + 3 && got[k][ADDED] == start + 3 &&
			     got[k][SWAPPED] == start + 8 && got[k][AFTER] == start + 100 &&
			     got[k][LAST] == (j->count == 1 ? start + 100 : start + j->count - 1);
		}
	}
	DO(MPI_Win_unlock_all(j->win));
	free(sent);
	free(got);
	free(expect);
	return ok;
}

/* Sums of all ranks at all ranks, by every available call, long ones between short ones. */
static bool atomic(struct job *j)
{
	uint64_t one = 1, *ones = allocate(j->count * 8), *got = allocate(j->count * 8), before, last = 0;
	uint64_t all = (uint64_t) j->ranks * (uint64_t) j->rounds;
	const uint64_t *sums = j->base + at(j, 0);
	int32_t small = 1;
	double real = 0.5;
	bool ok = true;

	for (size_t i = 0; i < j->count; i++)
		ones[i] = 1;
	DO(MPI_Win_lock_all(0, j->win));
	for (long k = 0; k < j->rounds; k++) {
		for (int by = 0; by < j->ranks; by++) {
			int to = (j->rank + by) % j->ranks;

			MPI_Accumulate(&one, 1, MPI_UINT64_T, to, at(j, 0), 1, MPI_UINT64_T, MPI_SUM, j->win);
			MPI_Accumulate(ones, (int) j->count, MPI_UINT64_T, to, at(j, 0), (int) j->count, MPI_UINT64_T,
				       MPI_SUM, j->win);
			MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, to, at(j, 0), MPI_SUM, j->win);
			MPI_Get_accumulate(ones, (int) j->count, MPI_UINT64_T, got, (int) j->count, MPI_UINT64_T, to,
					   at(j, 0), (int) j->count, MPI_UINT64_T, MPI_SUM, j->win);
			MPI_Accumulate(&small, 1, MPI_INT32_T, to, spare(j, THIRD), 1, MPI_INT32_T, MPI_SUM, j->win);
			MPI_Accumulate(&real, 1, MPI_DOUBLE, to, spare(j, FOURTH), 1, MPI_DOUBLE, MPI_SUM, j->win);
			DO(MPI_Win_flush_local(to, j->win));
			if (!by) {
				/* At least three of its own additions are in between. */
				ok = ok && before >= last + 2 && got[0] > before;
				last = got[0] + 1;
			}
		}
	}
	DO(MPI_Win_unlock_all(j->win));
	DO(MPI_Barrier(j->comm));
	DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, j->rank, 0, j->win));
	ok = ok && sums[0] == 4 * all;
	for (size_t i = 1; i < j->count; i++)
		ok = ok && sums[i] == 2 * all;
	memcpy(&small, j->base + spare(j, THIRD), sizeof(small));
	memcpy(&real, j->base + spare(j, FOURTH), sizeof(real));
	ok = ok && small == (int32_t) all && real == 0.5 * (double) all;
	DO(MPI_Win_unlock(j->rank, j->win));
	free(ones);
	free(got);
	return ok;
}

/* A counter of rank 0, changed by compare-and-swap, which others read at the same time. */
static bool swap(struct job *j)
{
	uint64_t expect = 0, next, got, read, last = 0, none = 0;
	bool ok = true;

	DO(MPI_Win_lock_all(0, j->win));
	for (long k = 0; k < j->rounds;) {
		next = expect + 1;
		MPI_Compare_and_swap(&next, &expect, &got, MPI_UINT64_T, 0, spare(j, FIRST), j->win);
		MPI_Fetch_and_op(&none, &read, MPI_UINT64_T, 0, spare(j, FIRST), MPI_NO_OP, j->win);
		DO(MPI_Win_flush(0, j->win));
		k += got == expect;
		expect = got == expect ? next : got;
		/* In order, and never decreasing. */
		ok = ok && read >= expect && read >= last;
		last = read;
	}
	DO(MPI_Win_unlock_all(j->win));
	DO(MPI_Barrier(j->comm));
	return (j->rank || load(j, FIRST) == (uint64_t) j->ranks * (uint64_t) j->rounds) && ok;
}

/* Locks of one rank next to locks of all: no rank requests one while it holds another. */
static bool crowd(struct job *j)
{
	uint64_t one = 1, n;
	bool ok = true;

	for (long k = 0; k < 10 * j->rounds; k++) {
		DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right_of(j), 0, j->win));
		get_word(j, &n, right_of(j), spare(j, FIRST));
		DO(MPI_Win_flush(right_of(j), j->win));
		n++;
		put_word(j, &n, right_of(j), spare(j, FIRST));
		DO(MPI_Win_unlock(right_of(j), j->win));
		DO(MPI_Win_lock_all(0, j->win));
		MPI_Accumulate(&one, 1, MPI_UINT64_T, 0, spare(j, SECOND), 1, MPI_UINT64_T, MPI_SUM, j->win);
		DO(MPI_Win_unlock_all(j->win));
	}
	DO(MPI_Barrier(j->comm));
	ok = load(j, FIRST) == 10 * (uint64_t) j->rounds;
	return (j->rank || load(j, SECOND) == 10 * (uint64_t) j->rounds * (uint64_t) j->ranks) && ok;
}

/* Every kind of epoch after every other, with barriers where locks meet posts or other locks. */
static bool mixed(struct job *j)
{
	MPI_Group from = group_of(j, left_of(j)), to = group_of(j, right_of(j));
	const uint64_t *got = j->base + at(j, left_of(j));
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		uint64_t phase = 8 * (uint64_t) k;

		fill(j, phase);
		DO(MPI_Win_fence(MPI_MODE_NOPRECEDE, j->win));
		put(j, right_of(j));
		DO(MPI_Win_fence(MPI_MODE_NOSUCCEED, j->win));
		ok = ok && same(j, got, left_of(j), phase);
		fill(j, phase + 1);
		DO(MPI_Win_post(from, 0, j->win));
		DO(MPI_Win_start(to, 0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_complete(j->win));
		DO(MPI_Win_wait(j->win));
		ok = ok && same(j, got, left_of(j), phase + 1);
		/* A window may not be posted and locked at the same time. */
		DO(MPI_Barrier(j->comm));
		fill(j, phase + 2);
		DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right_of(j), 0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_unlock(right_of(j), j->win));
		DO(MPI_Barrier(j->comm));
		fill(j, phase + 3);
		DO(MPI_Win_lock_all(0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_unlock_all(j->win));
		DO(MPI_Barrier(j->comm));
		DO(MPI_Win_lock(MPI_LOCK_SHARED, j->rank, 0, j->win));
		ok = ok && same(j, got, left_of(j), phase + 3);
		DO(MPI_Win_unlock(j->rank, j->win));
		DO(MPI_Barrier(j->comm));
		fill(j, phase + 4);
		DO(MPI_Win_post(from, 0, j->win));
		DO(MPI_Win_start(to, 0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_complete(j->win));
		DO(MPI_Win_wait(j->win));
		ok = ok && same(j, got, left_of(j), phase + 4);
	}
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	return ok;
}

const struct check passive_checks[] = {
	{ "exclusive", exclusive }, { "shared", shared },   { "several", several }, { "nolock", nolock },
	{ "flush", flush },	    { "request", request }, { "order", order },	    { "atomic", atomic },
	{ "swap", swap },	    { "mixed", mixed },	    { "crowd", crowd },	    { 0 },
};
