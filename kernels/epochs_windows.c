/* Windows of other kinds: two at once, memory that is attached and detached, memory that is shared. */
#include <stdlib.h>
#include <string.h>

#include "epochs.h"

/* A second window, in which ranks count backwards, is in its epochs at the same time as the first. */
static bool two(struct job *j)
{
	struct job a = *j, b = *j;
	MPI_Group group[4];
	bool ok = true;

	DO(MPI_Comm_split(j->comm, 0, -j->rank, &b.comm));
	MPI_Comm_rank(b.comm, &b.rank);
	MPI_Comm_group(b.comm, &b.all);
	b.block = allocate(j->count * 8);
	DO(MPI_Win_allocate((MPI_Aint) ((size_t) j->ranks * j->count * 8), 8, MPI_INFO_NULL, a.comm, &a.base, &a.win));
	DO(MPI_Win_allocate((MPI_Aint) ((size_t) j->ranks * j->count * 8), 8, MPI_INFO_NULL, b.comm, &b.base, &b.win));
	group[0] = group_of(&a, left_of(&a));
	group[1] = group_of(&a, right_of(&a));
	group[2] = group_of(&b, left_of(&b));
	group[3] = group_of(&b, right_of(&b));
	for (long k = 0; k < j->rounds; k++) {
		uint64_t phase = 2 * (uint64_t) k;

		fill(&a, phase);
		fill(&b, phase + 1);
		DO(MPI_Win_post(group[0], 0, a.win));
		DO(MPI_Win_post(group[2], 0, b.win));
		DO(MPI_Win_start(group[3], 0, b.win));
		DO(MPI_Win_start(group[1], 0, a.win));
		put(&a, right_of(&a));
		put(&b, right_of(&b));
		DO(MPI_Win_complete(a.win));
		DO(MPI_Win_complete(b.win));
		DO(MPI_Win_wait(b.win));
		DO(MPI_Win_wait(a.win));
		ok = ok && same(&a, a.base + at(&a, left_of(&a)), left_of(&a), phase) &&
		     same(&b, b.base + at(&b, left_of(&b)), left_of(&b), phase + 1);
		/* Fences of one around locks of the other. */
		DO(MPI_Win_fence(MPI_MODE_NOPRECEDE, a.win));
		fill(&a, phase + 500);
		put(&a, right_of(&a));
		fill(&b, phase + 501);
		DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right_of(&b), 0, b.win));
		put(&b, right_of(&b));
		DO(MPI_Win_unlock(right_of(&b), b.win));
		DO(MPI_Win_fence(MPI_MODE_NOSUCCEED, a.win));
		DO(MPI_Win_lock(MPI_LOCK_SHARED, b.rank, 0, b.win));
		ok = ok && same(&a, a.base + at(&a, left_of(&a)), left_of(&a), phase + 500) &&
		     same(&b, b.base + at(&b, left_of(&b)), left_of(&b), phase + 501);
		DO(MPI_Win_unlock(b.rank, b.win));
		DO(MPI_Barrier(j->comm));
	}
	DO(MPI_Win_free(&b.win));
	DO(MPI_Win_free(&a.win));
	for (int i = 0; i < 4; i++)
		MPI_Group_free(&group[i]);
	MPI_Group_free(&b.all);
	free(b.block);
	MPI_Comm_free(&b.comm);
	return ok;
}

/* Memory is attached, accessed, detached, and replaced by other memory. */
static bool dynamic(struct job *j)
{
	size_t bytes = j->count * 8;
	MPI_Aint *where = allocate((size_t) j->ranks * sizeof(*where)), mine;
	MPI_Group from = group_of(j, left_of(j)), to = group_of(j, right_of(j));
	uint64_t one = 1, before, *got = allocate(bytes);
	bool ok = true;
	MPI_Win win;

	DO(MPI_Win_create_dynamic(MPI_INFO_NULL, j->comm, &win));
	for (long k = 0; k < j->rounds; k++) {
		uint64_t *memory = allocate(bytes), *counter = allocate(8);
		uint64_t phase = 4 * (uint64_t) k;
		MPI_Aint counters;

		DO(MPI_Win_attach(win, memory, (MPI_Aint) bytes));
		DO(MPI_Win_attach(win, counter, 8));
		MPI_Get_address(memory, &mine);
		DO(MPI_Allgather(&mine, 1, MPI_AINT, where, 1, MPI_AINT, j->comm));
		MPI_Get_address(counter, &counters);
		DO(MPI_Bcast(&counters, 1, MPI_AINT, 0, j->comm));
		/* With locks. */
		fill(j, phase);
		DO(MPI_Win_lock_all(0, win));
		MPI_Put(j->block, (int) j->count, MPI_UINT64_T, right_of(j), where[right_of(j)], (int) j->count,
			MPI_UINT64_T, win);
		DO(MPI_Win_flush(right_of(j), win));
		MPI_Get(got, (int) j->count, MPI_UINT64_T, right_of(j), where[right_of(j)], (int) j->count,
			MPI_UINT64_T, win);
		MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, counters, MPI_SUM, win);
		DO(MPI_Win_unlock_all(win));
		ok = ok && same(j, got, j->rank, phase) && before < (uint64_t) j->ranks;
		DO(MPI_Barrier(j->comm));
		ok = ok && (j->rank || *counter == (uint64_t) j->ranks);
		/* Between fences. */
		DO(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
		fill(j, phase + 1);
		MPI_Put(j->block, (int) j->count, MPI_UINT64_T, right_of(j), where[right_of(j)], (int) j->count,
			MPI_UINT64_T, win);
		DO(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
		ok = ok && same(j, memory, left_of(j), phase + 1);
		/* With post and start. */
		DO(MPI_Win_post(from, 0, win));
		DO(MPI_Win_start(to, 0, win));
		fill(j, phase + 2);
		MPI_Put(j->block, (int) j->count, MPI_UINT64_T, right_of(j), where[right_of(j)], (int) j->count,
			MPI_UINT64_T, win);
		DO(MPI_Win_complete(win));
		DO(MPI_Win_wait(win));
		ok = ok && same(j, memory, left_of(j), phase + 2);
		DO(MPI_Win_detach(win, counter));
		DO(MPI_Win_detach(win, memory));
		free(counter);
		free(memory);
	}
	DO(MPI_Win_free(&win));
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	free(where);
	free(got);
	return ok;
}

/* A window whose memory all ranks of a node access by loads and stores. */
static bool memory(struct job *j)
{
	static const char *const apart[] = { "false", "true" };
	MPI_Comm node;
	bool ok = true;
	int rank, ranks;

	DO(MPI_Comm_split_type(j->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
	MPI_Comm_rank(node, &rank);
	MPI_Comm_size(node, &ranks);
	for (int i = 0; i < 2; i++) {
		uint64_t *own, *right = NULL, *first = NULL, one = 1, before;
		MPI_Info info;
		MPI_Aint size;
		MPI_Win win;
		int unit;

		MPI_Info_create(&info);
		MPI_Info_set(info, "alloc_shared_noncontig", apart[i]);
		DO(MPI_Win_allocate_shared(64, 8, info, node, &own, &win));
		MPI_Info_free(&info);
		MPI_Win_shared_query(win, (rank + 1) % ranks, &size, &unit, &right);
		ok = ok && size >= 64 && unit == 8 && right;
		MPI_Win_shared_query(win, 0, &size, &unit, &first);
		DO(MPI_Win_lock_all(0, win));
		memset(own, 0, 64);
		DO(MPI_Win_sync(win));
		DO(MPI_Barrier(node));
		DO(MPI_Win_sync(win));
		for (long k = 1; k <= j->rounds; k++) {
			right[0] = (uint64_t) k * 100 + (uint64_t) rank;
			MPI_Put(&(uint64_t) { (uint64_t) k }, 1, MPI_UINT64_T, (rank + 1) % ranks, 1, 1, MPI_UINT64_T,
				win);
			DO(MPI_Win_flush((rank + 1) % ranks, win));
			MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, 2, MPI_SUM, win);
			DO(MPI_Win_flush(0, win));
			DO(MPI_Win_sync(win));
			DO(MPI_Barrier(node));
			DO(MPI_Win_sync(win));
			ok = ok && own[0] == (uint64_t) k * 100 + (uint64_t) ((rank + ranks - 1) % ranks) &&
			     own[1] == (uint64_t) k;
			ok = ok && first[2] == (uint64_t) ranks * (uint64_t) k;
			DO(MPI_Barrier(node));
		}
		DO(MPI_Win_unlock_all(win));
		DO(MPI_Win_free(&win));
	}
	MPI_Comm_free(&node);
	return ok;
}

const struct check window_checks[] = { { "two", two }, { "dynamic", dynamic }, { "memory", memory }, { 0 } };
