/*
 * Where an MPI's memory lies, with libivshmem-mpi.so preloaded: memory REGION BYTES
 * prints a line for each thing that it finds, of all ranks alike, or says what is wrong.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int rank, ranks;

/* Is p in a mapping of the file? By its number: who made it sees no name. */
static int inside(const void *p, const char *file)
{
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t from, to, at = (uintptr_t) p;
	unsigned long long number;
	struct stat st;
	char line[1024];
	int found = 0;

	if (stat(file, &st))
		st.st_ino = 0;
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %llu", &from, &to, &number) == 3 &&
		    at >= from && at < to)
			found = number && number == st.st_ino;
	if (f)
		fclose(f);
	return found;
}

/* All ranks must have the same answer. */
static void say(const char *what, int yes)
{
	int least, most;

	MPI_Allreduce(&yes, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&yes, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s: %s\n", what, least != most ? "some" : least ? "yes" : "no");
}

/* Each rank writes to the next and reads from the one before. */
static int works(MPI_Win win, int64_t *memory, int n)
{
	int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, ok = 1, i;
	int64_t *out = malloc((size_t) n * 8), *in = malloc((size_t) n * 8);

	for (i = 0; i < n; i++)
		out[i] = rank * 1000003L + i;
	MPI_Win_lock_all(0, win);
	MPI_Put(out, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, win);
	MPI_Win_flush(to, win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(win);
	for (i = 0; i < n; i++)
		ok &= memory[i] == from * 1000003L + i;
	MPI_Get(in, n, MPI_INT64_T, to, 0, n, MPI_INT64_T, win);
	MPI_Win_flush(to, win);
	ok &= !memcmp(in, out, (size_t) n * 8);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	free(out);
	free(in);
	return ok;
}

int main(int argc, char **argv)
{
	MPI_Aint bytes = argc > 2 ? atol(argv[2]) : 65536;
	char *p, *q, *first, *kept;
	int *flavor, flag, i, same;
	const char *region = argv[1];
	void *large[4096];
	int64_t *memory;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);

	MPI_Alloc_mem(bytes, MPI_INFO_NULL, &p);
	say("memory in the region", inside(p, region) && inside(p + bytes - 1, region));
	memset(p, rank, (size_t) bytes);
	MPI_Win_create(p, bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	say("a window over it works", works(win, (int64_t *) (void *) p, (int) (bytes / 8)));
	MPI_Win_free(&win);
	MPI_Free_mem(p);

	/* What was given back is given out again, also in part and together. */
	MPI_Alloc_mem(bytes, MPI_INFO_NULL, &first);
	MPI_Free_mem(first);
	same = 1;
	for (i = 0; i < 1000; i++) {
		MPI_Alloc_mem(4096, MPI_INFO_NULL, &p);
		MPI_Alloc_mem(bytes - 4096, MPI_INFO_NULL, &q);
		same &= inside(p, region) && inside(q, region) && p != q;
		MPI_Free_mem(i & 1 ? p : q);
		MPI_Free_mem(i & 1 ? q : p);
	}
	MPI_Alloc_mem(bytes, MPI_INFO_NULL, &p);
	same &= p == first;
	MPI_Free_mem(p);
	say("memory is given out again", same);

	MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	say("a window in the region", inside(memory, region));
	MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
	say("its flavor is allocated", flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
	say("it works", works(win, memory, (int) (bytes / 8)));
	MPI_Win_free(&win);
	say("its handle is null", win == MPI_WIN_NULL);

	/* One rank's part is full: it has the MPI's memory, and all have the MPI's window. */
	for (i = 0; i < 4096; i++)
		large[i] = NULL;
	for (i = 0; rank == 0 && i < 4096; i++) {
		MPI_Alloc_mem(bytes, MPI_INFO_NULL, &large[i]);
		memset(large[i], 1, (size_t) bytes);
		if (!inside(large[i], region))
			break;
	}
	MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	say("a window in the region where one has no room", inside(memory, region));
	MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
	say("its flavor is allocated", flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
	say("it works", works(win, memory, (int) (bytes / 8)));
	MPI_Win_free(&win);
	for (i = 0; i < 4096 && large[i]; i++)
		MPI_Free_mem(large[i]);
	MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	say("a window in the region when there is room again", inside(memory, region));
	MPI_Win_free(&win);

	MPI_Alloc_mem(bytes, MPI_INFO_NULL, &kept);
	memset(kept, 'k', (size_t) bytes);
	say("memory in the region", inside(kept, region));
	MPI_Finalize();
	for (i = 0; i < bytes; i++)
		if (kept[i] != 'k')
			break;
	if (rank == 0)
		printf("what was not freed is as it was: %s\n", i == bytes ? "yes" : "no");
	return 0;
}
