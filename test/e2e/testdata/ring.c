/*
 * A token goes round all ranks, ROUNDS times. Rank 0 prints the token's last value, how often all ranks together have
 * slept meanwhile, and the time of a round in microseconds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static long slept(void)
{
	struct rusage use;

	getrusage(RUSAGE_THREAD, &use);
	return use.ru_nvcsw;
}

int main(int argc, char **argv)
{
	int rank, size, i, rounds = argc > 1 ? atoi(argv[1]) : 100;
	long token = 0, before, mine, all;
	double began;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Barrier(MPI_COMM_WORLD);
	before = slept();
	began = MPI_Wtime();
	for (i = 0; i < rounds; i++) {
		if (rank) {
			MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			token++;
			MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
		} else {
			token++;
			MPI_Send(&token, 1, MPI_LONG, 1 % size, 0, MPI_COMM_WORLD);
			MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
	}
	began = (MPI_Wtime() - began) / rounds * 1e6;
	mine = slept() - before;
	MPI_Reduce(&mine, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("token %ld slept %ld round %.1f us\n", token, all, began);
	MPI_Finalize();
	return 0;
}
