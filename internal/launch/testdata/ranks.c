/*
 * ranks: checks from within how a launcher started ranks on the hosts.
 *
 *	ranks			every rank names its host; a ring and a sum over all ranks
 *	ranks exit RANK CODE	rank RANK leaves with CODE after MPI_Finalize
 *	ranks kill RANK SIGNAL	rank RANK dies by SIGNAL while the others wait for it
 *	ranks wait FILE		all ranks wait; rank 0 makes FILE once they do
 *	ranks env NAME...	every rank prints these variables
 */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Exits with code. With RANKS_LEAVE set MPI_Finalize is skipped: in half of the runs MPICH 4.0's over UCX and TCP
 * waits for ranks that wait for it (docs/mpi-troubleshooting.md).
 */
static int leave(int code)
{
	if (getenv("RANKS_LEAVE")) {
		const char *fd = getenv("PMI_FD");
		char answer[64];

		MPI_Barrier(MPI_COMM_WORLD);
		fflush(stdout);
		/* The launcher still expects this message (PMI-1). */
		if (!fd || write(atoi(fd), "cmd=finalize\n", 13) != 13 || read(atoi(fd), answer, sizeof(answer)) <= 0)
			_exit(99);
		_exit(code);
	}
	MPI_Finalize();
	return code;
}

/* Passes a token that grows by each rank's number around all ranks. */
static long ring(int rank, int size)
{
	long token = 0;

	if (size == 1)
		return 0;
	if (rank == 0) {
		MPI_Send(&token, 1, MPI_LONG, 1, 7, MPI_COMM_WORLD);
		MPI_Recv(&token, 1, MPI_LONG, size - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(&token, 1, MPI_LONG, rank - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token += rank;
		MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 7, MPI_COMM_WORLD);
	}
	return token;
}

int main(int argc, char **argv)
{
	enum { COUNT = 40000 }; /* doubles: above every eager limit */
	static double in[COUNT], out[COUNT];
	const char *mode = argc > 1 ? argv[1] : "check";
	int rank, size, i, bad = 0;
	char host[256] = "?";
	long token, want;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	gethostname(host, sizeof(host) - 1);

	if (!strcmp(mode, "env")) {
		for (i = 2; i < argc; i++) {
			const char *value = getenv(argv[i]);

			printf("rank %d %s=%s\n", rank, argv[i], value ? value : "(unset)");
		}
		return leave(0);
	}
	if (!strcmp(mode, "exit") && argc == 4)
		return leave(rank == atoi(argv[2]) ? atoi(argv[3]) : 0);
	if (!strcmp(mode, "kill") && argc == 4) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == atoi(argv[2]))
			raise(atoi(argv[3]));
		MPI_Barrier(MPI_COMM_WORLD);
		return leave(0);
	}
	if (!strcmp(mode, "wait") && argc == 3) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			close(open(argv[2], O_WRONLY | O_CREAT, 0600));
		for (;;)
			pause();
	}

	token = ring(rank, size);
	want = (long) size * (size - 1) / 2;
	if (rank == 0 && token != want)
		bad = 1;
	for (i = 0; i < COUNT; i++)
		in[i] = rank + i;
	MPI_Allreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < COUNT; i++)
		if (out[i] != (double) want + (double) size * i)
			bad = 1;
	printf("rank %d of %d on %s: %s\n", rank, size, host, bad ? "wrong" : "right");
	fflush(stdout);
	return leave(bad);
}
