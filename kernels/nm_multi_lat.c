/* Latency of several pairs of MPI ranks at once, by OSU's method. */
#include <mpi.h>
#include <stdlib.h>

#include "p2p.h"

static const char help[] = "nm_multi_lat - latency of several pairs of MPI ranks at once\n"
			   "\n"
			   "Usage: mpirun -n RANKS nm_multi_lat [OPTION]...\n"
			   "\n"
			   "Each rank of the lower half sends a message to its partner in the upper half, which\n"
			   "sends one of the same size back, all pairs at once, as in OSU's osu_multi_lat. The mean\n"
			   "is half a round trip in microseconds, over all pairs; min, median and p99 are those of\n"
			   "the first pair's rounds. The content is checked once for each size.\n"
			   "\n"
			   "Options: those of nm_latency (see nm_latency --help).\n"
			   "\n"
			   "Exit status: 0; 1 if a message did not arrive as it was sent, or without memory; 2 for\n"
			   "a wrong option or an odd number of ranks.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 16 nm_multi_lat --sizes 8:4KiB\n";

static void round_trips(const struct p2p *p, int bytes, long n, double *samples)
{
	bool first = p->rank < p->ranks / 2;

	for (long i = 0; i < n; i++) {
		double start = samples ? now() : 0;

		if (first)
			MPI_Send(p->send, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD);
		MPI_Recv(p->receive, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (!first)
			MPI_Send(p->send, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD);
		if (samples)
			samples[i] = (now() - start) * 1e6 / 2;
	}
}

static bool measure(struct p2p *p, size_t bytes)
{
	long warmup = p2p_warmup(p, bytes), n;
	double start, mine, all = 0, *samples;
	struct summary s;

	p2p_fill(p, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	round_trips(p, (int) bytes, warmup, NULL);
	n = p2p_iterations(p, bytes, warmup, now() - start, 2);
	samples = p2p_samples(n);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	round_trips(p, (int) bytes, n, NULL);
	mine = (now() - start) * 1e6 / (double) n / 2;
	MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	round_trips(p, (int) bytes, n, samples);
	s = summarize(samples, (size_t) n);
	s.mean = all / p->ranks;
	free(samples);
	if (!p2p_received(p, bytes, true))
		return false;
	p2p_row(p, bytes, n, &s);
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_multi_lat",
		.what = "half a round trip, pairs of ranks at once, us",
		.unit = "us",
		.help = help,
		.takes = P2P_PAIRS,
		.max_bytes = 4 << 20,
		.iterations = 10000,
		.iterations_large = 1000,
		.warmup = 100,
		.warmup_large = 10,
		.time_limit = 10,
	};

	return p2p_main(&p, argc, argv, measure);
}
