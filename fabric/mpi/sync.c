/*
 * Works around faults in how MPIs synchronize windows; docs/mpi-troubleshooting.md describes them.
 *
 * MPICH (to 5.0 at least) counts the posts that reach a rank and does not check their origin. MPI_Win_start of a group
 * of one then counts a post from a rank outside that group, and waits forever if there are two. Therefore the posts are
 * messages here: one for each rank of MPI_Win_post's group, which MPI_Win_start receives from the ranks of its group.
 * Both MPI calls are made with MPI_MODE_NOCHECK, whose assertion then holds.
 *
 * MPICH's MPI_Win_lock with MPI_MODE_NOCHECK makes all later locks of the same target keep their lock; Open MPI's osc
 * sm with MPI_MODE_NOCHECK in MPI_Win_post waits forever. The assertion is only a hint, and is removed.
 */
#include <stdlib.h>

#include "window.h"

bool ivm_posts_open(ivm_handle comm, ivm_handle *posts)
{
	int (*dup)(ivm_handle, void *);

	if (!ivm_abi()->counts_posts)
		return false;
	*posts = 0;
	*(void **) &dup = ivm_next("PMPI_Comm_dup");
	return dup && !dup(comm, posts);
}

void ivm_posts_close(ivm_handle *posts)
{
	int (*end)(void *);

	*(void **) &end = ivm_next("PMPI_Comm_free");
	if (end)
		end(posts);
}

/*
 * Returns the ranks in comm of a group's members, *n of them; the caller frees them. Returns NULL without memory or if
 * MPI fails.
 */
static int *ranks_of(ivm_handle group, ivm_handle comm, int *n)
{
	int (*size)(ivm_handle, int *), (*group_of)(ivm_handle, void *), (*end)(void *);
	int (*translate)(ivm_handle, int, const int *, ivm_handle, int *);
	ivm_handle all = 0;
	int *ranks = NULL, i;

	*(void **) &size = ivm_next("PMPI_Group_size");
	*(void **) &group_of = ivm_next("PMPI_Comm_group");
	*(void **) &end = ivm_next("PMPI_Group_free");
	*(void **) &translate = ivm_next("PMPI_Group_translate_ranks");
	if (!size || !group_of || !end || !translate || size(group, n) || group_of(comm, &all))
		return NULL;
	ranks = malloc(2 * (size_t) (*n + 1) * sizeof(*ranks));
	for (i = 0; ranks && i < *n; i++)
		ranks[*n + i] = i;
	if (ranks && translate(group, *n, ranks + *n, all, ranks)) {
		free(ranks);
		ranks = NULL;
	}
	end(&all);
	return ranks;
}

typedef int open_epoch(ivm_handle group, int assert, ivm_handle win);

static int post(const char *name, ivm_handle group, int assert, ivm_handle win)
{
	const struct ivm_window *w = ivm_window(win);
	const int nocheck = ivm_abi()->nocheck;
	open_epoch *next = (open_epoch *) ivm_next(name);
	int (*send)(const void *, int, ivm_handle, int, int, ivm_handle, void *);
	int (*leave)(void *);
	int *ranks, n, i, ret;
	ivm_handle request;

	*(void **) &send = ivm_next("PMPI_Isend");
	*(void **) &leave = ivm_next("PMPI_Request_free");
	if (!next || !send || !leave)
		return -1;
	if (!w || !w->posts)
		return next(group, assert & ~(ivm_abi()->known ? nocheck : 0), win);
	if (assert &nocheck)
		return next(group, assert, win);
	ranks = ranks_of(group, w->comm, &n);
	ret = ranks ? next(group, assert | nocheck, win) : -1;
	/* MPI_Win_post does not block, and its group may contain this rank. */
	for (i = 0; !ret && i < n; i++) {
		ret = send(NULL, 0, ivm_abi()->type_int, ranks[i], 0, w->comm, &request);
		if (!ret)
			ret = leave(&request);
	}
	free(ranks);
	return ret;
}

static int start(const char *name, ivm_handle group, int assert, ivm_handle win)
{
	const struct ivm_window *w = ivm_window(win);
	const int nocheck = ivm_abi()->nocheck;
	open_epoch *next = (open_epoch *) ivm_next(name);
	int (*receive)(void *, int, ivm_handle, int, int, ivm_handle, void *);
	int *ranks, n, i, ret = 0;
	uint64_t status[16]; /* larger than any MPI's status */

	*(void **) &receive = ivm_next("PMPI_Recv");
	if (!next || !receive)
		return -1;
	if (!w || !w->posts)
		return next(group, assert & ~(ivm_abi()->known ? nocheck : 0), win);
	if (assert &nocheck)
		return next(group, assert, win);
	ranks = ranks_of(group, w->comm, &n);
	if (!ranks)
		return -1;
	for (i = 0; !ret && i < n; i++)
		ret = receive(NULL, 0, ivm_abi()->type_int, ranks[i], 0, w->comm, status);
	free(ranks);
	return ret ? ret : next(group, assert | nocheck, win);
}

typedef int lock_one(int type, int rank, int assert, ivm_handle win);

static int lock(const char *name, int type, int rank, int assert, ivm_handle win)
{
	lock_one *next = (lock_one *) ivm_next(name);

	if (ivm_abi()->counts_posts)
		assert &= ~ivm_abi()->nocheck;
	return next ? next(type, rank, assert, win) : -1;
}

IVM_EXPORT open_epoch MPI_Win_post, PMPI_Win_post, MPI_Win_start, PMPI_Win_start;
IVM_EXPORT lock_one MPI_Win_lock, PMPI_Win_lock;

#define BOTH(prefix) \
	int prefix##MPI_Win_post(ivm_handle group, int assert, ivm_handle win) \
	{ \
		return post(#prefix "MPI_Win_post", group, assert, win); \
	} \
\
	int prefix##MPI_Win_start(ivm_handle group, int assert, ivm_handle win) \
	{ \
		return start(#prefix "MPI_Win_start", group, assert, win); \
	} \
\
	int prefix##MPI_Win_lock(int type, int rank, int assert, ivm_handle win) \
	{ \
		return lock(#prefix "MPI_Win_lock", type, rank, assert, win); \
	}

BOTH()
BOTH(P)
