/* Latency between two MPI ranks: half a round trip, by OSU's method. */
#include <mpi.h>
#include <stdlib.h>

#include "p2p.h"

static const char help[] = "nm_latency - latency between two MPI ranks\n"
			   "\n"
			   "Usage: mpirun -n 2 nm_latency [OPTION]...\n"
			   "\n"
			   "Rank 0 sends a message to rank 1, which sends one of the same size back; half of that\n"
			   "time is the latency, in microseconds. The method is that of OSU's osu_latency: for each\n"
			   "size some warm-up rounds, then ITERATIONS rounds timed as a whole, which give the mean.\n"
			   "As many rounds again, each timed by itself, give the least, the median and the 99th\n"
			   "percentile; each of those contains half the time of a clock reading (about 10 ns).\n"
			   "The content of the messages is checked once for each size.\n"
			   "\n"
			   "Options:\n"
			   "      --sizes A:B           sizes in bytes, doubling from A to B (default 0:4MiB);\n"
			   "                            units: KiB, MiB, GiB; one number is one size\n"
			   "      --iterations N[:M]    rounds for sizes up to 8 KiB, and above (default 10000:1000;\n"
			   "                            N alone is for all sizes)\n"
			   "      --warmup N[:M]        rounds before those, likewise (default 100:10)\n"
			   "      --time-limit SECONDS  about how long a size may take: fewer rounds are made where\n"
			   "                            the warm-up was slow, at least 10 (default 10; 0: no limit)\n"
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
			   "  mpirun -n 2 nm_latency --sizes 8:4KiB\n"
			   "  nearmetal run --vms 2 -- mpirun -n 2 ./nm_latency\n";

static void round_trips(const struct p2p *p, int bytes, long n, double *samples)
{
	for (long i = 0; i < n; i++) {
		double start = samples ? now() : 0;

		if (p->rank == 0) {
			MPI_Send(p->send, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
			MPI_Recv(p->receive, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(p->receive, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(p->send, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
		}
		if (samples)
			samples[i] = (now() - start) * 1e6 / 2;
	}
}

/* Returns false if a message was damaged. */
static bool measure(struct p2p *p, size_t bytes)
{
	long warmup = p2p_warmup(p, bytes), n;
	struct summary s;
	double start, mean, *samples;

	p2p_fill(p, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	round_trips(p, (int) bytes, warmup, NULL);
	n = p2p_iterations(p, bytes, warmup, now() - start, 2);
	samples = malloc((size_t) n * sizeof(*samples));
	if (!samples)
		MPI_Abort(MPI_COMM_WORLD, 1);

	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	round_trips(p, (int) bytes, n, NULL);
	mean = (now() - start) * 1e6 / (double) n / 2;
	MPI_Barrier(MPI_COMM_WORLD);
	round_trips(p, (int) bytes, n, samples);
	s = summarize(samples, (size_t) n);
	s.mean = mean;
	free(samples);
	if (!p2p_received(p, bytes, true))
		return false;
	p2p_row(p, bytes, n, &s);
	return true;
}

int main(int argc, char **argv)
{
	struct p2p p = {
		.program = "nm_latency",
		.what = "half a round trip between two ranks, us",
		.unit = "us",
		.help = help,
		.max_bytes = 4 << 20,
		.iterations = 10000,
		.iterations_large = 1000,
		.warmup = 100,
		.warmup_large = 10,
		.time_limit = 10,
	};
	int status = p2p_options(&p, argc, argv);

	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	status = p2p_start(&p);
	if (status < 0) {
		status = 0;
		for (size_t b = p.min_bytes; b <= p.max_bytes && !status; b = next_size(b))
			status = !measure(&p, b);
		p2p_end(&p);
	}
	MPI_Finalize();
	return status;
}
