/* Bandwidth from one MPI rank to another, by OSU's method. */
#include <mpi.h>
#include <stdlib.h>

#include "p2p.h"

static const char help[] = "nm_bw - bandwidth from one MPI rank to another\n"
			   "\n"
			   "Usage: mpirun -n 2 nm_bw [OPTION]...\n"
			   "\n"
			   "Rank 0 starts a window of nonblocking sends, waits for them, and waits for an answer of\n"
			   "4 bytes that rank 1 sends when it has received them all: one iteration, as in OSU's\n"
			   "osu_bw. The mean is all bytes by the whole time of the iterations; min, median and p99\n"
			   "are those of the single iterations: p99 is the bandwidth that 99 % of them reached.\n"
			   "All in MB/s (1e6 bytes a second). The content is checked once for each size.\n"
			   "\n"
			   "Options:\n"
			   "      --sizes A:B           sizes in bytes, doubling from A to B (default 1:4MiB);\n"
			   "                            units: KiB, MiB, GiB; one number is one size\n"
			   "      --window N            sends in an iteration (default 64)\n"
			   "      --iterations N[:M]    iterations for sizes up to 8 KiB, and above (default 100:20;\n"
			   "                            N alone is for all sizes)\n"
			   "      --warmup N[:M]        iterations before those, likewise (default 10:2)\n"
			   "      --time-limit SECONDS  about how long a size may take: fewer iterations are made\n"
			   "                            where the warm-up was slow, at least 10 (default 10; 0: no\n"
			   "                            limit)\n"
			   "      --json                one JSON document instead of the table\n"
			   "  -h, --help                this text\n"
			   "\n"
			   "Output: lines that start with # name the MPI library and the host or VM of each rank,\n"
			   "and say \"emulated\" of a rank in a VM whose instructions QEMU emulates (TCG).\n"
			   "Columns: bytes, iterations, mean, min, median, p99.\n"
			   "\n"
			   "Exit status: 0; 1 if a message did not arrive as it was sent, or without memory; 2 for\n"
			   "a wrong option or a number of ranks other than 2.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 2 nm_bw --sizes 4KiB:4MiB --json\n";

/* A window's requests, and their statuses, which OSU's program also requests. */
struct window {
	MPI_Request *requests;
	MPI_Status *statuses;
};

static void windows(const struct p2p *p, int bytes, long n, const struct window *q, double *seconds)
{
	int window = (int) p->window, ack = 0;

	for (long i = 0; i < n; i++) {
		double start = now();

		for (int w = 0; w < window; w++) {
			if (p->rank == 0)
				MPI_Isend(p->send, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &q->requests[w]);
			else
				MPI_Irecv(p->receive, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &q->requests[w]);
		}
		MPI_Waitall(window, q->requests, q->statuses);
		if (p->rank == 0)
			MPI_Recv(&ack, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(&ack, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
		if (seconds)
			seconds[i] = now() - start;
	}
}

/* Returns false if a message was damaged. */
static bool measure(struct p2p *p, size_t bytes, const struct window *q)
{
	long warmup = p2p_warmup(p, bytes), n;
	double start, total, mb = (double) bytes * (double) p->window / 1e6, *seconds;
	struct summary s, rate;

	p2p_fill(p, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	windows(p, (int) bytes, warmup, q, NULL);
	n = p2p_iterations(p, bytes, warmup, now() - start, 1);
	seconds = malloc((size_t) n * sizeof(*seconds));
	if (!seconds)
		MPI_Abort(MPI_COMM_WORLD, 1);

	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	windows(p, (int) bytes, n, q, seconds);
	total = now() - start;
	s = summarize(seconds, (size_t) n);
	free(seconds);
	rate.mean = mb * (double) n / total;
	rate.min = mb / s.max;
	rate.max = mb / s.min;
	rate.median = mb / s.median;
	rate.p99 = mb / s.p99;
	if (!p2p_received(p, bytes, p->rank == 1))
		return false;
	p2p_row(p, bytes, n, &rate);
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_bw",
		.what = "bandwidth from rank 0 to rank 1, MB/s (1e6 bytes a second)",
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
	int status = p2p_options(&p, argc, argv);

	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	status = p2p_start(&p);
	if (status < 0) {
		struct window q = {
			.requests = malloc((size_t) p.window * sizeof(*q.requests)),
			.statuses = malloc((size_t) p.window * sizeof(*q.statuses)),
		};

		if (!q.requests || !q.statuses)
			MPI_Abort(MPI_COMM_WORLD, 1);
		status = 0;
		for (size_t b = p.min_bytes; b <= p.max_bytes && !status; b = next_size(b))
			status = !measure(&p, b, &q);
		free(q.requests);
		free(q.statuses);
		p2p_end(&p);
	}
	MPI_Finalize();
	return status;
}
