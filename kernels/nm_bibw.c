/* Bandwidth between two MPI ranks in both directions at once, by OSU's method. */
#include <mpi.h>

#include "p2p.h"

static const char help[] = "nm_bibw - bandwidth between two MPI ranks in both directions at once\n"
			   "\n"
			   "Usage: mpirun -n 2 nm_bibw [OPTION]...\n"
			   "\n"
			   "Both ranks start a window of nonblocking receives and one of sends and wait for all of\n"
			   "them: one iteration, as in OSU's osu_bibw. The mean is all bytes of both directions by\n"
			   "the whole time; min, median and p99 are those of single iterations, p99 being the\n"
			   "bandwidth that 99 % of them reached. All in MB/s (1e6 bytes a second). The content is\n"
			   "checked once for each size.\n"
			   "\n"
			   "Options: those of nm_bw (see nm_bw --help).\n"
			   "\n"
			   "Exit status: 0; 1 if a message did not arrive as it was sent, or without memory; 2 for\n"
			   "a wrong option or a number of ranks other than 2.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 2 nm_bibw --sizes 4KiB:4MiB\n";

static void windows(const struct p2p *p, int bytes, long n, MPI_Request *q, MPI_Status *st, double *seconds)
{
	int window = (int) p->window;

	for (long i = 0; i < n; i++) {
		double start = now();

		for (int w = 0; w < window; w++)
			MPI_Irecv(p->receive, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, &q[w]);
		for (int w = 0; w < window; w++)
			MPI_Isend(p->send, bytes, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, &q[window + w]);
		MPI_Waitall(2 * window, q, st);
		if (seconds)
			seconds[i] = now() - start;
	}
}

static bool measure(struct p2p *p, size_t bytes)
{
	long n;
	double total, mb = 2 * (double) bytes * (double) p->window / 1e6;
	struct summary s = p2p_time_windows(p, bytes, 2 * (size_t) p->window, windows, &n, &total), rate;

	rate = (struct summary) { .mean = mb * (double) n / total,
				  .min = mb / s.max,
				  .max = mb / s.min,
				  .median = mb / s.median,
				  .p99 = mb / s.p99 };
	if (!p2p_received(p, bytes, true))
		return false;
	p2p_row(p, bytes, n, &rate);
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_bibw",
		.what = "bandwidth between two ranks, both directions, MB/s (1e6 bytes a second)",
		.unit = "MB/s",
		.help = help,
		.window_used = true,
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
