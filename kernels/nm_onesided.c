/* One-sided communication whose results are checked: put, get, accumulate, locks. */
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] =
	"nm_onesided - check MPI's one-sided communication between all ranks\n"
	"\n"
	"Usage: mpirun -n RANKS nm_onesided [OPTION]...\n"
	"\n"
	"Every rank reaches the memory of every other, in windows that MPI allocated and in\n"
	"windows over memory of the program's own:\n"
	"  fence        put to and get from all ranks between fences\n"
	"  lock         put, flush and get under shared locks; a counter under exclusive locks\n"
	"  accumulate   sums, greatest values and replacements of all ranks at all ranks\n"
	"  fetch        tickets by fetch-and-op, of which each is drawn once\n"
	"  swap         a counter by compare-and-swap\n"
	"  start        post, start, complete and wait around a ring\n"
	"  vector       every second element, by a derived datatype\n"
	"What each operation leaves is known beforehand and compared.\n"
	"\n"
	"Options:\n"
	"      --bytes N             put and got at once, 8 to 16MiB (default 64KiB); a multiple of 8\n"
	"      --rounds N            of the counters, 1 to 100000 (default 20)\n"
	"  -h, --help                this text\n"
	"\n"
	"Output: lines that start with # say where it ran; then for each kind of window and each\n"
	"check its name and ok, or what was wrong.\n"
	"\n"
	"Exit status: 0; 1 if something was wrong; 2 for a wrong option.\n"
	"\n"
	"Example:\n"
	"  nearmetal run --vms 2 -- mpirun -n 4 ./nm_onesided --bytes 1MiB\n";

struct job {
	int rank, ranks;
	uint64_t bytes; /* of a block */
	long rounds;
	size_t count; /* 64-bit words of a block */
	MPI_Win win;  /* a block from each rank, then SPARE words */
	uint64_t *base;
	uint64_t *block; /* to send from and receive into */
	const char *kind;
	bool failed; /* a fault occurred on this rank */
};

enum { COUNTER, TICKET, SWAPPED, SUM, MOST, LAST, SPARE = 8 };

static void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p) {
		fprintf(stderr, "nm_onesided: out of memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return p;
}

/* Returns word i of the data that rank sends to rank to in a phase. */
static uint64_t word(int rank, int to, size_t i, int phase)
{
	return ((uint64_t) (unsigned) rank << 48 ^ (uint64_t) (unsigned) to << 32 ^ (uint64_t) phase << 56) +
	       i * 2654435761u;
}

static void fill(struct job *j, int to, int phase)
{
	for (size_t i = 0; i < j->count; i++)
		j->block[i] = word(j->rank, to, i, phase);
}

/* Returns whether words is the data that rank from sends to rank to. */
static bool same(const struct job *j, const uint64_t *words, int from, int to, int phase)
{
	for (size_t i = 0; i < j->count; i++)
		if (words[i] != word(from, to, i, phase))
			return false;
	return true;
}

/* Returns the displacement, in words, of the block that rank writes, and of spare word s. */
static MPI_Aint at(const struct job *j, int rank)
{
	return (MPI_Aint) ((size_t) rank * j->count);
}

static MPI_Aint spare(const struct job *j, int s)
{
	return at(j, j->ranks) + s;
}

static void clear(struct job *j)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, j->rank, 0, j->win);
	memset(j->base, 0, ((size_t) j->ranks * j->count + SPARE) * 8);
	MPI_Win_unlock(j->rank, j->win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Ends a check: rank 0 reports whether it was right on all ranks. */
static void verdict(struct job *j, const char *check, bool ok)
{
	int mine = ok ? j->ranks : j->rank, first;

	MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (j->rank == 0 && first < j->ranks)
		printf("%-9s %-11s wrong, first on rank %d\n", j->kind, check, first);
	else if (j->rank == 0)
		printf("%-9s %-11s ok\n", j->kind, check);
	fflush(stdout);
	j->failed = j->failed || first < j->ranks;
	clear(j);
}

static void fence(struct job *j)
{
	bool ok = true;
	/* A block must not change before the fence, so there is one for each target. */
	uint64_t *own = j->block, *all = allocate((size_t) j->ranks * j->count * 8);

	MPI_Win_fence(0, j->win);
	for (int to = 0; to < j->ranks; to++) {
		j->block = all + (size_t) to * j->count;
		fill(j, to, 1);
		MPI_Put(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T,
			j->win);
	}
	j->block = own;
	MPI_Win_fence(0, j->win);
	for (int from = 0; from < j->ranks; from++)
		ok = ok && same(j, j->base + at(j, from), from, j->rank, 1);
	MPI_Win_fence(0, j->win);
	/* Gets every rank's block for its right neighbour, from its place. */
	for (int r = 0; r < j->ranks; r++)
		MPI_Get(all + (size_t) r * j->count, (int) j->count, MPI_UINT64_T, (r + 1) % j->ranks, at(j, r),
			(int) j->count, MPI_UINT64_T, j->win);
	MPI_Win_fence(0, j->win);
	for (int r = 0; r < j->ranks; r++)
		ok = ok && same(j, all + (size_t) r * j->count, r, (r + 1) % j->ranks, 1);
	free(all);
	verdict(j, "fence", ok);
}

static void lock(struct job *j)
{
	bool ok = true;
	uint64_t n = 0;

	for (int k = 1; k <= j->ranks; k++) {
		int to = (j->rank + k) % j->ranks;

		fill(j, to, 2);
		MPI_Win_lock(MPI_LOCK_SHARED, to, 0, j->win);
		MPI_Put(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T,
			j->win);
		MPI_Win_flush(to, j->win);
		memset(j->block, 0, j->bytes);
		MPI_Get(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T,
			j->win);
		MPI_Win_unlock(to, j->win);
		ok = ok && same(j, j->block, j->rank, to, 2);
	}
	for (long i = 0; i < j->rounds; i++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, j->win);
		MPI_Get(&n, 1, MPI_UINT64_T, 0, spare(j, COUNTER), 1, MPI_UINT64_T, j->win);
		MPI_Win_flush(0, j->win);
		n++;
		MPI_Put(&n, 1, MPI_UINT64_T, 0, spare(j, COUNTER), 1, MPI_UINT64_T, j->win);
		MPI_Win_unlock(0, j->win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, j->win);
	MPI_Get(&n, 1, MPI_UINT64_T, 0, spare(j, COUNTER), 1, MPI_UINT64_T, j->win);
	MPI_Win_unlock(0, j->win);
	verdict(j, "lock", ok && n == (uint64_t) j->ranks * (uint64_t) j->rounds);
}

static void accumulate(struct job *j)
{
	uint64_t one[3] = { (uint64_t) j->rank + 1, (uint64_t) j->rank + 100, 7 };
	uint64_t sum = (uint64_t) j->ranks * ((uint64_t) j->ranks + 1) / 2;
	bool ok = true;
	double *d = (double *) j->block;

	for (size_t i = 0; i < j->count; i++)
		d[i] = (double) (j->rank + 1) * (double) (i % 1000);
	MPI_Win_fence(0, j->win);
	for (int to = 0; to < j->ranks; to++) {
		MPI_Accumulate(&one[0], 1, MPI_UINT64_T, to, spare(j, SUM), 1, MPI_UINT64_T, MPI_SUM, j->win);
		MPI_Accumulate(&one[1], 1, MPI_UINT64_T, to, spare(j, MOST), 1, MPI_UINT64_T, MPI_MAX, j->win);
		MPI_Accumulate(&one[2], 1, MPI_UINT64_T, to, spare(j, LAST), 1, MPI_UINT64_T, MPI_REPLACE, j->win);
		/* Whole numbers below 2^53: exact in any order. */
		MPI_Accumulate(d, (int) j->count, MPI_DOUBLE, to, at(j, 0), (int) j->count, MPI_DOUBLE, MPI_SUM,
			       j->win);
	}
	MPI_Win_fence(0, j->win);
	for (size_t i = 0; i < j->count; i++) {
		double v;

		memcpy(&v, &j->base[i], sizeof(v));
		ok = ok && v == (double) sum * (double) (i % 1000);
	}
	ok = ok && j->base[spare(j, SUM)] == sum && j->base[spare(j, MOST)] == (uint64_t) j->ranks + 99 &&
	     j->base[spare(j, LAST)] == 7;
	verdict(j, "accumulate", ok);
}

static void fetch(struct job *j)
{
	size_t all = (size_t) j->ranks * (size_t) j->rounds;
	uint64_t one = 1, got, *mine = allocate(all * 8), *seen = allocate(all * 8);
	bool ok = true;

	MPI_Win_lock_all(0, j->win);
	for (long i = 0; i < j->rounds; i++) {
		MPI_Fetch_and_op(&one, &got, MPI_UINT64_T, j->ranks - 1, spare(j, TICKET), MPI_SUM, j->win);
		MPI_Win_flush(j->ranks - 1, j->win);
		if (got < all)
			mine[got]++;
		else
			ok = false;
	}
	MPI_Win_unlock_all(j->win);
	MPI_Allreduce(mine, seen, (int) all, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (size_t i = 0; i < all; i++)
		ok = ok && seen[i] == 1;
	free(mine);
	free(seen);
	verdict(j, "fetch", ok);
}

static void swap(struct job *j)
{
	uint64_t expect = 0, next, got, end = 0, zero = 0;

	MPI_Win_lock_all(0, j->win);
	for (long i = 0; i < j->rounds;) {
		next = expect + 1;
		MPI_Compare_and_swap(&next, &expect, &got, MPI_UINT64_T, 0, spare(j, SWAPPED), j->win);
		MPI_Win_flush(0, j->win);
		i += got == expect;
		expect = got == expect ? next : got;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Fetch_and_op(&zero, &end, MPI_UINT64_T, 0, spare(j, SWAPPED), MPI_NO_OP, j->win);
	MPI_Win_unlock_all(j->win);
	verdict(j, "swap", end == (uint64_t) j->ranks * (uint64_t) j->rounds);
}

static void start(struct job *j)
{
	int left = (j->rank + j->ranks - 1) % j->ranks, right = (j->rank + 1) % j->ranks;
	MPI_Group world, from, to;

	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &left, &from);
	MPI_Group_incl(world, 1, &right, &to);
	fill(j, right, 3);
	MPI_Win_post(from, 0, j->win);
	MPI_Win_start(to, 0, j->win);
	MPI_Put(j->block, (int) j->count, MPI_UINT64_T, right, at(j, j->rank), (int) j->count, MPI_UINT64_T, j->win);
	MPI_Win_complete(j->win);
	MPI_Win_wait(j->win);
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	MPI_Group_free(&world);
	verdict(j, "start", same(j, j->base + at(j, left), left, j->rank, 3));
}

static void vector(struct job *j)
{
	int right = (j->rank + 1) % j->ranks, left = (j->rank + j->ranks - 1) % j->ranks;
	int half = (int) (j->count / 2);
	const uint64_t *got = j->base + at(j, left);
	MPI_Datatype every;
	bool ok = true;

	MPI_Type_vector(half, 1, 2, MPI_UINT64_T, &every);
	MPI_Type_commit(&every);
	fill(j, right, 4);
	MPI_Win_fence(0, j->win);
	if (half)
		MPI_Put(j->block, half, MPI_UINT64_T, right, at(j, j->rank), 1, every, j->win);
	MPI_Win_fence(0, j->win);
	for (int i = 0; i < half; i++)
		ok = ok && got[2 * i] == word(left, j->rank, (size_t) i, 4) && got[2 * i + 1] == 0;
	MPI_Type_free(&every);
	verdict(j, "vector", ok);
}

static void window(struct job *j, bool create)
{
	size_t bytes = ((size_t) j->ranks * j->count + SPARE) * 8;
	void *own = NULL;

	j->kind = create ? "created" : "allocated";
	if (create) {
		own = allocate(bytes);
		j->base = own;
		MPI_Win_create(own, (MPI_Aint) bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &j->win);
	} else {
		MPI_Win_allocate((MPI_Aint) bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &j->base, &j->win);
	}
	clear(j);
	fence(j);
	lock(j);
	accumulate(j);
	fetch(j);
	swap(j);
	start(j);
	vector(j);
	MPI_Win_free(&j->win);
	free(own);
}

/* Returns -1 to continue, else the status to exit with. */
static int read_options(struct job *j, int argc, char **argv)
{
	static const struct option options[] = {
		{ "bytes", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, status;

	while ((c = next_option(argc, argv, "h", options, help, &status)) >= 0) {
		switch (c) {
		case 'b':
			if (!value_size("bytes", optarg, 8, 16 << 20, &j->bytes))
				return 2;
			break;
		case 'r':
			if (!value_count("rounds", optarg, 1, 100000, &j->rounds))
				return 2;
			break;
		}
	}
	if (status >= 0)
		return status;
	if (j->bytes % 8) {
		complain("--bytes: %" PRIu64 " is not a multiple of 8", j->bytes);
		return 2;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct job j = { .bytes = 64 << 10, .rounds = 20 };
	char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
	int status, len;

	program_name("nm_onesided");
	status = read_options(&j, argc, argv);
	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &j.ranks);
	MPI_Get_processor_name(name, &len);
	if (j.rank == 0)
		printf("# nm_onesided: %d ranks, blocks of %" PRIu64 " bytes, rank 0 on %s%s\n", j.ranks, j.bytes, name,
		       emulated() ? " (emulated)" : "");
	j.count = j.bytes / 8;
	j.block = allocate(j.bytes);
	window(&j, false);
	window(&j, true);
	free(j.block);
	MPI_Finalize();
	return j.failed ? 1 : 0;
}
