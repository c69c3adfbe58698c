/* Bandwidth and message rate of several pairs of MPI ranks at once, by OSU's method. */
#include <mpi.h>

#include "p2p.h"

static const char help[] = "nm_mbw_mr - bandwidth and message rate of several pairs of MPI ranks at once\n"
			   "\n"
			   "Usage: mpirun -n RANKS nm_mbw_mr [OPTION]...\n"
			   "\n"
			   "Each rank of the lower half starts a window of nonblocking sends to its partner in the\n"
			   "upper half, waits for them, and waits for an answer of 4 bytes: one iteration, as in\n"
			   "OSU's osu_mbw_mr. The mean is the bytes of all pairs by the mean of the senders' times;\n"
			   "min, median and p99 are those of the first pair's iterations, times the pairs. All in\n"
			   "MB/s (1e6 bytes a second); with --json the messages a second as well. The content is\n"
			   "checked once for each size.\n"
			   "\n"
			   "Options: those of nm_bw (see nm_bw --help).\n"
			   "\n"
			   "Exit status: 0; 1 if a message did not arrive as it was sent, or without memory; 2 for\n"
			   "a wrong option or an odd number of ranks.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 16 nm_mbw_mr --sizes 1:64KiB\n";

static void windows(const struct p2p *p, int bytes, long n, MPI_Request *q, MPI_Status *st, double *seconds)
{
	int window = (int) p->window, ack = 0;
	bool sends = p->rank < p->ranks / 2;

	for (long i = 0; i < n; i++) {
		double start = now();

		for (int w = 0; w < window; w++) {
			if (sends)
				MPI_Isend(p->send, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, &q[w]);
			else
				MPI_Irecv(p->receive, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, &q[w]);
		}
		MPI_Waitall(window, q, st);
		if (sends)
			MPI_Recv(&ack, 1, MPI_INT, p->peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(&ack, 1, MPI_INT, p->peer, 2, MPI_COMM_WORLD);
		if (seconds)
			seconds[i] = now() - start;
	}
}

static bool measure(struct p2p *p, size_t bytes)
{
	int pairs = p->ranks / 2;
	long n;
	double total, mine, all = 0, mb = (double) bytes * (double) p->window * pairs / 1e6;
	struct summary s = p2p_time_windows(p, bytes, (size_t) p->window, windows, &n, &total), rate;

	mine = p->rank < pairs ? total : 0;
	MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!p2p_received(p, bytes, p->rank >= pairs))
		return false;
	if (p->rank == 0) {
		rate = (struct summary) { .mean = mb * (double) n / (all / pairs),
					  .min = mb / s.max,
					  .max = mb / s.min,
					  .median = mb / s.median,
					  .p99 = mb / s.p99 };
		p->messages = rate.mean * 1e6 / (double) bytes;
		p2p_row(p, bytes, n, &rate);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_mbw_mr",
		.what = "bandwidth of all pairs of ranks, MB/s (1e6 bytes a second)",
		.unit = "MB/s",
		.help = help,
		.window_used = true,
		.takes = P2P_PAIRS,
		.min_bytes = 1,
		.max_bytes = 4 << 20,
		.iterations = 100,
		.iterations_large = 20,
		.warmup = 10,
		.warmup_large = 2,
		.window = 64,
		.time_limit = 10,
	};

	return p2p_main(&p, argc, argv, measure);
}
