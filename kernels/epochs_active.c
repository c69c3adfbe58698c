/* Epochs in which the target participates: fence; post, start, complete and wait. */
#include <stdlib.h>

#include "epochs.h"

static bool fences(struct job *j)
{
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		int by = (int) (k % j->ranks), to = (j->rank + by) % j->ranks,
		    from = (j->rank - by + j->ranks) % j->ranks;

		DO(MPI_Win_fence(0, j->win));
		fill(j, (uint64_t) k);
		put(j, to);
		DO(MPI_Win_fence(0, j->win));
		ok = ok && same(j, j->base + at(j, from), from, (uint64_t) k);
	}
	DO(MPI_Win_fence(MPI_MODE_NOSUCCEED, j->win));
	return ok;
}

static bool asserts(struct job *j)
{
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		uint64_t phase = (uint64_t) k;
		uint64_t *own = j->base + at(j, j->rank), mark = 0;

		/* Puts only. There are no stores to the window until the next fence. */
		DO(MPI_Win_fence(MPI_MODE_NOPRECEDE, j->win));
		fill(j, phase);
		put(j, right_of(j));
		DO(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, j->win));
		ok = ok && same(j, j->base + at(j, left_of(j)), left_of(j), phase);
		/* Local stores, then gets only. */
		own[0] = phase + 1000;
		DO(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOPUT, j->win));
		MPI_Get(&mark, 1, MPI_UINT64_T, left_of(j), at(j, left_of(j)), 1, MPI_UINT64_T, j->win);
		MPI_Get(j->block, (int) j->count, MPI_UINT64_T, right_of(j), at(j, j->rank), (int) j->count,
			MPI_UINT64_T, j->win);
		DO(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED | MPI_MODE_NOPUT, j->win));
		ok = ok && mark == phase + 1000;
		/* With one rank, both are the same block. */
		ok = ok && (j->ranks == 1 || same(j, j->block, j->rank, phase));
	}
	return ok;
}

/* Around a ring: no data is written before the target posts, and all of it has arrived after its wait. */
static bool ring(struct job *j)
{
	MPI_Group from = group_of(j, left_of(j)), to = group_of(j, right_of(j));
	const uint64_t *got = j->base + at(j, left_of(j));
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		fill(j, (uint64_t) k);
		DO(MPI_Win_post(from, 0, j->win));
		DO(MPI_Win_start(to, 0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_complete(j->win));
		DO(MPI_Win_wait(j->win));
		/* A neighbour that is ahead may be in the next round's start, but not further. */
		ok = ok && same(j, got, left_of(j), (uint64_t) k);
		ok = ok && same(j, got, left_of(j), (uint64_t) k);
	}
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	return ok;
}

/* Puts to all ranks of a group in an epoch, with start first or post first; phase determines the data. */
static bool exchange(struct job *j, MPI_Group group, bool start_first, uint64_t phase)
{
	int n, *ranks = allocate((size_t) j->ranks * sizeof(*ranks)), *in = allocate((size_t) j->ranks * sizeof(*in));
	bool ok = true;

	MPI_Group_size(group, &n);
	for (int i = 0; i < n; i++)
		in[i] = i;
	MPI_Group_translate_ranks(group, n, in, j->all, ranks);
	fill(j, phase);
	if (start_first) {
		DO(MPI_Win_start(group, 0, j->win));
		DO(MPI_Win_post(group, 0, j->win));
	} else {
		DO(MPI_Win_post(group, 0, j->win));
		DO(MPI_Win_start(group, 0, j->win));
	}
	for (int i = 0; i < n; i++)
		put(j, ranks[i]);
	DO(MPI_Win_complete(j->win));
	DO(MPI_Win_wait(j->win));
	for (int i = 0; i < n; i++)
		ok = ok && same(j, j->base + at(j, ranks[i]), ranks[i], phase);
	free(ranks);
	free(in);
	return ok;
}

static bool orders(struct job *j)
{
	MPI_Group all = others(j), one;
	bool ok = true;

	/* In each exchange one rank starts before it posts. */
	for (int k = 0; k < j->ranks; k++)
		ok = exchange(j, all, k == j->rank, (uint64_t) k) && ok;
	/* From one rank to the next: a rank that was reached reaches the next one. */
	fill(j, 100);
	if (j->rank > 0) {
		one = group_of(j, j->rank - 1);
		DO(MPI_Win_start(one, 0, j->win));
		put(j, j->rank - 1);
		DO(MPI_Win_complete(j->win));
		MPI_Group_free(&one);
	}
	if (j->rank < j->ranks - 1) {
		one = group_of(j, j->rank + 1);
		DO(MPI_Win_post(one, 0, j->win));
		DO(MPI_Win_wait(j->win));
		ok = ok && same(j, j->base + at(j, j->rank + 1), j->rank + 1, 100);
		MPI_Group_free(&one);
	}
	DO(MPI_Barrier(j->comm));
	/* One rank reaches all others; each rank in turn. */
	for (int k = 0; k < j->ranks; k++) {
		one = group_of(j, k);
		if (k == j->rank) {
			fill(j, 200 + (uint64_t) k);
			DO(MPI_Win_start(all, 0, j->win));
			for (int to = 0; to < j->ranks; to++)
				if (to != k)
					put(j, to);
			DO(MPI_Win_complete(j->win));
		} else {
			DO(MPI_Win_post(one, 0, j->win));
			DO(MPI_Win_wait(j->win));
			ok = ok && same(j, j->base + at(j, k), k, 200 + (uint64_t) k);
		}
		MPI_Group_free(&one);
	}
	MPI_Group_free(&all);
	return ok;
}

static bool groups(struct job *j)
{
	MPI_Group self = group_of(j, j->rank);
	bool ok = true;

	ok = exchange(j, MPI_GROUP_EMPTY, false, 1) && ok;
	ok = exchange(j, MPI_GROUP_EMPTY, true, 2) && ok;
	ok = exchange(j, self, false, 3) && ok;
	DO(MPI_Barrier(j->comm));
	for (long k = 0; k < j->rounds; k++)
		ok = exchange(j, j->all, false, 4 + (uint64_t) k) && ok;
	MPI_Group_free(&self);
	return ok;
}

static bool nocheck(struct job *j)
{
	MPI_Group all = others(j);
	uint64_t *own = j->base + at(j, j->rank), *got = allocate((size_t) j->ranks * 8);
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		fill(j, (uint64_t) k);
		DO(MPI_Win_post(all, MPI_MODE_NOCHECK | MPI_MODE_NOSTORE, j->win));
		DO(MPI_Barrier(j->comm));
		DO(MPI_Win_start(all, MPI_MODE_NOCHECK, j->win));
		for (int to = 0; to < j->ranks; to++)
			if (to != j->rank)
				put(j, to);
		DO(MPI_Win_complete(j->win));
		DO(MPI_Win_wait(j->win));
		for (int from = 0; from < j->ranks; from++)
			ok = ok && (from == j->rank || same(j, j->base + at(j, from), from, (uint64_t) k));
		own[0] = (uint64_t) k + 7;
		/* No puts: gets only. */
		DO(MPI_Win_post(all, MPI_MODE_NOPUT, j->win));
		DO(MPI_Win_start(all, 0, j->win));
		for (int from = 0; from < j->ranks; from++)
			if (from != j->rank)
				MPI_Get(&got[from], 1, MPI_UINT64_T, from, at(j, from), 1, MPI_UINT64_T, j->win);
		DO(MPI_Win_complete(j->win));
		DO(MPI_Win_wait(j->win));
		for (int from = 0; from < j->ranks; from++)
			ok = ok && (from == j->rank || got[from] == (uint64_t) k + 7);
	}
	free(got);
	MPI_Group_free(&all);
	return ok;
}

/* MPI_Win_test instead of MPI_Win_wait, before and after the puts arrive. */
static bool tested(struct job *j)
{
	MPI_Group from = group_of(j, left_of(j)), to = group_of(j, right_of(j));
	bool ok = true;
	int done;

	for (long k = 0; k < j->rounds; k++) {
		fill(j, (uint64_t) k);
		DO(MPI_Win_post(from, 0, j->win));
		DO(MPI_Win_test(j->win, &done));
		/* Ranks that put need this rank's message first. */
		ok = ok && !done;
		DO(MPI_Sendrecv(NULL, 0, MPI_INT, left_of(j), 1, NULL, 0, MPI_INT, right_of(j), 1, j->comm,
				MPI_STATUS_IGNORE));
		DO(MPI_Win_start(to, 0, j->win));
		put(j, right_of(j));
		DO(MPI_Win_complete(j->win));
		for (done = 0; !done;)
			DO(MPI_Win_test(j->win, &done));
		ok = ok && same(j, j->base + at(j, left_of(j)), left_of(j), (uint64_t) k);
	}
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	return ok;
}

/* Messages do not overtake an epoch: a message sent after complete arrives before wait ends. */
static bool message(struct job *j)
{
	MPI_Group from = group_of(j, left_of(j)), to = group_of(j, right_of(j));
	uint64_t *got = allocate(j->count * 8);
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		MPI_Request r[2];
		MPI_Status ignored[2]; /* MPICH's MPI_STATUSES_IGNORE makes gcc 12 warn */

		MPI_Irecv(got, (int) j->count, MPI_UINT64_T, left_of(j), 2, j->comm, &r[0]);
		DO(MPI_Win_post(from, 0, j->win));
		DO(MPI_Win_start(to, 0, j->win));
		fill(j, (uint64_t) k);
		put(j, right_of(j));
		DO(MPI_Win_complete(j->win));
		MPI_Isend(j->block, (int) j->count, MPI_UINT64_T, right_of(j), 2, j->comm, &r[1]);
		DO(MPI_Waitall(2, r, ignored));
		DO(MPI_Win_wait(j->win));
		ok = ok && same(j, got, left_of(j), (uint64_t) k) &&
		     same(j, j->base + at(j, left_of(j)), left_of(j), (uint64_t) k);
	}
	free(got);
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	return ok;
}

/*
 * Even ranks with odd ones, then each with its own kind: a rank that has finished the first exchange posts to one
 * that still waits for others' posts.
 */
static bool parity(struct job *j)
{
	int *same_kind = allocate((size_t) j->ranks * sizeof(int)),
	    *other_kind = allocate((size_t) j->ranks * sizeof(int)), s = 0, o = 0;
	MPI_Group alike, unlike;
	bool ok = true;

	for (int r = 0; r < j->ranks; r++) {
		if (r == j->rank)
			continue;
		if (r % 2 == j->rank % 2)
			same_kind[s++] = r;
		else
			other_kind[o++] = r;
	}
	MPI_Group_incl(j->all, s, same_kind, &alike);
	MPI_Group_incl(j->all, o, other_kind, &unlike);
	free(same_kind);
	free(other_kind);
	for (long k = 0; k < j->rounds; k++) {
		ok = exchange(j, unlike, j->rank % 2 == 0, 2 * (uint64_t) k) && ok;
		ok = exchange(j, alike, false, 2 * (uint64_t) k + 1) && ok;
	}
	MPI_Group_free(&alike);
	MPI_Group_free(&unlike);
	return ok;
}

/* All ranks have posted to one, which then reaches them one by one. */
static bool early(struct job *j)
{
	bool ok = true;

	for (long k = 0; k < j->rounds; k++) {
		int hub = (int) (k % j->ranks);
		MPI_Group one;

		if (j->rank == hub) {
			for (int r = 0; r < j->ranks; r++)
				if (r != hub)
					DO(MPI_Recv(NULL, 0, MPI_INT, r, 3, j->comm, MPI_STATUS_IGNORE));
			fill(j, (uint64_t) k);
			for (int r = j->ranks - 1; r >= 0; r--) {
				if (r == hub)
					continue;
				one = group_of(j, r);
				DO(MPI_Win_start(one, 0, j->win));
				put(j, r);
				DO(MPI_Win_complete(j->win));
				MPI_Group_free(&one);
			}
		} else {
			one = group_of(j, hub);
			DO(MPI_Win_post(one, 0, j->win));
			DO(MPI_Send(NULL, 0, MPI_INT, hub, 3, j->comm));
			DO(MPI_Win_wait(j->win));
			MPI_Group_free(&one);
			ok = ok && same(j, j->base + at(j, hub), hub, (uint64_t) k);
		}
	}
	return ok;
}

const struct check active_checks[] = {
	{ "fence", fences },
	{ "asserts", asserts },
	{ "ring", ring },
	{ "orders", orders },
	{ "groups", groups },
	{ "nocheck", nocheck },
	{ "test", tested },
	{ "message", message },
	{ "parity", parity },
	{ "early", early },
	{ 0 },
};
