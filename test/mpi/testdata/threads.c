/*
 * threads: under MPI_THREAD_MULTIPLE three threads of every rank send to the same threads of all others, each with
 * a tag of its own, and receive from whomever it comes; a fourth adds up over all ranks meanwhile. Says "rank R: right",
 * or "rank R: no threads" where the library does not offer that.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENDERS = 3, ROUNDS = 20, MOST = 60000 };

static int rank, size, wrong[SENDERS + 1];
static MPI_Comm sums;

static unsigned char byte_of(int from, int tag, int i)
{
	return (unsigned char) (from * 31 + tag * 7 + i * 13 + (i >> 8));
}

static int length(int round)
{
	static const int lengths[] = { 8, 300, 5000, MOST };

	return lengths[round % 4];
}

static void *exchange(void *arg)
{
	int thread = (int) (size_t) arg;
	unsigned char *out = malloc(MOST), *in = malloc(MOST);
	MPI_Request *sent = malloc(sizeof(*sent) * (size_t) size);

	if (!out || !in || !sent)
		MPI_Abort(MPI_COMM_WORLD, 3);
	for (int round = 0; round < ROUNDS; round++) {
		int tag = round * SENDERS + thread, n = length(round);

		for (int i = 0; i < n; i++)
			out[i] = byte_of(rank, tag, i);
		for (int to = 0; to < size; to++)
			if (to == rank)
				sent[to] = MPI_REQUEST_NULL;
			else
				MPI_Isend(out, n, MPI_BYTE, to, tag, MPI_COMM_WORLD, &sent[to]);
		for (int k = 1; k < size; k++) {
			MPI_Status st;
			int got;

			MPI_Recv(in, MOST, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &st);
			MPI_Get_count(&st, MPI_BYTE, &got);
			wrong[thread] += got != n;
			for (int i = 0; i < got; i++)
				wrong[thread] += in[i] != byte_of(st.MPI_SOURCE, tag, i);
		}
		MPI_Waitall(size, sent, MPI_STATUSES_IGNORE);
	}
	free(out);
	free(in);
	free(sent);
	return NULL;
}

static void *add_up(void *arg)
{
	(void) arg;
	for (int round = 0; round < ROUNDS; round++) {
		int mine = rank + round, sum = 0;

		MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, sums);
		wrong[SENDERS] += sum != size * (size - 1) / 2 + size * round;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[SENDERS + 1];
	int has, bad = 0;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &has);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (has < MPI_THREAD_MULTIPLE) {
		printf("rank %d: no threads\n", rank);
		MPI_Finalize();
		return 0;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &sums);
	for (size_t i = 0; i <= SENDERS; i++)
		if (pthread_create(&threads[i], NULL, i < SENDERS ? exchange : add_up, (void *) i))
			MPI_Abort(MPI_COMM_WORLD, 3);
	for (size_t i = 0; i <= SENDERS; i++) {
		pthread_join(threads[i], NULL);
		bad += wrong[i];
	}
	MPI_Comm_free(&sums);
	printf("rank %d: %s\n", rank, bad ? "wrong" : "right");
	fflush(stdout);
	MPI_Finalize();
	return bad != 0;
}
