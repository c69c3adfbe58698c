/* Latency of MPI's collective operations, by OSU's method. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "p2p.h"
#include "values.h"

static const char help[] = "nm_coll - latency of MPI's collective operations\n"
			   "\n"
			   "Usage: mpirun -n RANKS nm_coll OPERATION [OPTION]...\n"
			   "\n"
			   "OPERATION is barrier, bcast, reduce, allreduce, gather, scatter, allgather or alltoall.\n"
			   "As in OSU's programs of these names, ranks meet in a barrier before each operation, each\n"
			   "times the operation alone, and the mean is that of all ranks, in microseconds; min,\n"
			   "median and p99 are those of rank 0. Sizes are those of one rank's part; reduce and\n"
			   "allreduce add up integers of 4 bytes. The result is checked once for each size.\n"
			   "\n"
			   "Options: those of nm_latency (see nm_latency --help); --sizes 4:1MiB by default.\n"
			   "\n"
			   "Exit status: 0; 1 if a result is wrong, or without memory; 2 for a wrong option or a\n"
			   "single rank.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 8 nm_coll allreduce --sizes 8:64KiB\n";

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, ALLTOALL };

static const char *const words[] = { "barrier", "bcast",     "reduce",	 "allreduce", "gather",
				     "scatter", "allgather", "alltoall", NULL };
static int operation;

static void operate(const struct p2p *p, int bytes)
{
	MPI_Comm c = MPI_COMM_WORLD;

	switch (operation) {
	case BARRIER: MPI_Barrier(c); break;
	case BCAST: MPI_Bcast(p->rank == 0 ? p->send : p->receive, bytes, MPI_BYTE, 0, c); break;
	case REDUCE: MPI_Reduce(p->send, p->receive, bytes / 4, MPI_INT, MPI_SUM, 0, c); break;
	case ALLREDUCE: MPI_Allreduce(p->send, p->receive, bytes / 4, MPI_INT, MPI_SUM, c); break;
	case GATHER: MPI_Gather(p->send, bytes, MPI_BYTE, p->receive, bytes, MPI_BYTE, 0, c); break;
	case SCATTER: MPI_Scatter(p->send, bytes, MPI_BYTE, p->receive, bytes, MPI_BYTE, 0, c); break;
	case ALLGATHER: MPI_Allgather(p->send, bytes, MPI_BYTE, p->receive, bytes, MPI_BYTE, c); break;
	case ALLTOALL: MPI_Alltoall(p->send, bytes, MPI_BYTE, p->receive, bytes, MPI_BYTE, c); break;
	}
}

static bool sums(void)
{
	return operation == REDUCE || operation == ALLREDUCE;
}

/*
 * Fills every rank's part of the send buffer; scatter's root sends to each rank the data that the rank itself would
 * send.
 */
static void fill(const struct p2p *p, size_t bytes)
{
	int parts = operation == SCATTER || operation == ALLTOALL ? p->ranks : 1;

	memset(p->receive, 0, bytes * (size_t) p->ranks);
	if (sums()) {
		for (size_t i = 0; i < bytes / 4; i++)
			((int *) p->send)[i] = (p->rank + 1) * (int) (i % 1000);
		return;
	}
	for (int r = 0; r < parts; r++) {
		for (size_t i = 0; i < bytes; i++)
			p->send[(size_t) r * bytes + i] = p2p_pattern(operation == SCATTER ? r : p->rank, bytes, i);
	}
}

static bool is(const struct p2p *p, size_t bytes, int part, int sender)
{
	for (size_t i = 0; i < bytes; i++) {
		if (p->receive[(size_t) part * bytes + i] != p2p_pattern(sender, bytes, i))
			return false;
	}
	return true;
}

static bool wrong(const struct p2p *p, size_t bytes)
{
	bool root = p->rank == 0;

	switch (operation) {
	case BCAST: return !root && !is(p, bytes, 0, 0);
	case SCATTER: return !is(p, bytes, 0, p->rank);
	case GATHER:
	case ALLGATHER:
	case ALLTOALL:
		for (int r = 0; r < p->ranks && (root || operation != GATHER); r++) {
			if (!is(p, bytes, r, r))
				return true;
		}
		return false;
	case REDUCE:
	case ALLREDUCE:
		for (size_t i = 0; i < bytes / 4 && (root || operation != REDUCE); i++) {
			if (((int *) p->receive)[i] != p->ranks * (p->ranks + 1) / 2 * (int) (i % 1000))
				return true;
		}
	}
	return false;
}

static double several(const struct p2p *p, int bytes, long n, double *us)
{
	double total = 0;

	for (long i = 0; i < n; i++) {
		double start, took;

		MPI_Barrier(MPI_COMM_WORLD);
		start = now();
		operate(p, bytes);
		took = now() - start;
		total += took;
		if (us)
			us[i] = took * 1e6;
	}
	return total;
}

static bool measure(struct p2p *p, size_t bytes)
{
	long warmup = p2p_warmup(p, bytes), n;
	double start, mine, all = 0, *us;
	struct summary s;

	fill(p, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	several(p, (int) bytes, warmup, NULL);
	n = p2p_iterations(p, bytes, warmup, now() - start, 1);
	us = p2p_samples(n);
	mine = several(p, (int) bytes, n, us) * 1e6 / (double) n;
	MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	s = summarize(us, (size_t) n);
	s.mean = all / p->ranks;
	free(us);
	if (!p2p_right(p, bytes, wrong(p, bytes)))
		return false;
	p2p_row(p, bytes, n, &s);
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_coll",
		.what = "one operation, mean of all ranks, us",
		.unit = "us",
		.help = help,
		.takes = P2P_MANY,
		.per_rank = true,
		.min_bytes = 4,
		.max_bytes = 1 << 20,
		.iterations = 1000,
		.iterations_large = 100,
		.warmup = 100,
		.warmup_large = 10,
		.time_limit = 10,
		.limit = 16 << 20,
	};

	program_name("nm_coll");
	operation = p2p_words(words, argc, argv, help);
	if (operation < 0)
		return operation == -1 ? 0 : 2;
	if (operation == BARRIER)
		p.min_bytes = p.max_bytes = 0;
	argv[1] = argv[0];
	return p2p_main(&p, argc - 1, argv + 1, measure);
}
