/* One-sided MPI between two ranks: put and get, latency and bandwidth, by OSU's method. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "p2p.h"
#include "values.h"

static const char help[] = "nm_rma - one-sided MPI between two ranks\n"
			   "\n"
			   "Usage: mpirun -n 2 nm_rma WHAT [OPTION]...\n"
			   "\n"
			   "WHAT is put-latency, get-latency, put-bw or get-bw, as OSU's programs with these names\n"
			   "measure it with their defaults: a window made by MPI_Win_allocate, locked once, and\n"
			   "MPI_Win_flush after each operation (latency, in microseconds: the whole operation), or\n"
			   "after a window of them at places of their own (bandwidth, MB/s: 1e6 bytes a second).\n"
			   "The mean is that of ITERATIONS timed as a whole; min, median and p99 are of single ones.\n"
			   "The content is checked once for each size.\n"
			   "\n"
			   "Options: those of nm_bw (see nm_bw --help); --sizes up to 16MiB.\n"
			   "\n"
			   "Exit status: 0; 1 if bytes did not arrive as they were put or got, or without memory; 2\n"
			   "for a wrong option or a number of ranks other than 2.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 2 nm_rma put-latency --sizes 8:4KiB\n";

#define MAX_BYTES (16 << 20)

static bool get, bandwidth;
static MPI_Win win;
static unsigned char *shared, *local; /* window * max_bytes: this rank's part of win, and a private one */

static void operations(const struct p2p *p, int bytes, long n, double *seconds)
{
	int window = bandwidth ? (int) p->window : 1;

	for (long i = 0; i < n; i++) {
		double start = seconds ? now() : 0;

		for (int w = 0; w < window; w++) {
			size_t at = (size_t) w * (size_t) bytes;

			if (get)
				MPI_Get(local + at, bytes, MPI_BYTE, 1, (MPI_Aint) at, bytes, MPI_BYTE, win);
			else
				MPI_Put(p->send, bytes, MPI_BYTE, 1, (MPI_Aint) at, bytes, MPI_BYTE, win);
		}
		MPI_Win_flush(1, win);
		if (seconds)
			seconds[i] = now() - start;
	}
}

/* Compares the data received, on the rank that received it, with the data that the other rank sent. */
static bool right(const struct p2p *p, size_t bytes)
{
	bool wrong = false, here = p->rank == (get ? 0 : 1);
	const unsigned char *b = get ? local : shared;
	size_t all = bytes * (size_t) (bandwidth ? p->window : 1);

	for (size_t i = 0; here && i < all && !wrong; i++)
		wrong = b[i] != p2p_pattern(p->peer, bytes, i % bytes);
	return p2p_right(p, bytes, wrong);
}

static bool measure(struct p2p *p, size_t bytes)
{
	size_t all = (size_t) (bandwidth ? p->window : 1) * bytes;
	long warmup = p2p_warmup(p, bytes), n = 0;
	double start, total = 0, *seconds = NULL, mb = (double) all / 1e6;
	struct summary s = { 0 };

	p2p_fill(p, bytes);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, p->rank, 0, win);
	for (size_t i = 0; i < all; i++)
		shared[i] = get ? p2p_pattern(p->rank, bytes, i % bytes) : 0;
	MPI_Win_unlock(p->rank, win);
	memset(local, 0, all);
	MPI_Barrier(MPI_COMM_WORLD);
	if (p->rank == 0)
		MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
	start = now();
	if (p->rank == 0)
		operations(p, (int) bytes, warmup, NULL);
	n = p2p_iterations(p, bytes, warmup, now() - start, 2);
	if (p->rank == 0) {
		seconds = p2p_samples(n);
		start = now();
		operations(p, (int) bytes, n, NULL);
		total = now() - start;
		operations(p, (int) bytes, n, seconds);
		s = summarize(seconds, (size_t) n);
		free(seconds);
		MPI_Win_unlock(1, win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, p->rank, 0, win); /* makes put data visible to its owner's loads */
	bool ok = right(p, bytes);
	MPI_Win_unlock(p->rank, win);
	if (!ok)
		return false;
	if (bandwidth)
		s = (struct summary) { .mean = mb * (double) n / total,
				       .min = mb / s.max,
				       .max = mb / s.min,
				       .median = mb / s.median,
				       .p99 = mb / s.p99 };
	else
		s = (struct summary) { .mean = total * 1e6 / (double) n,
				       .min = s.min * 1e6,
				       .median = s.median * 1e6,
				       .p99 = s.p99 * 1e6 };
	p2p_row(p, bytes, n, &s);
	return true;
}

/* Makes the window before the first size, when the ranks and sizes are known. */
static bool first(struct p2p *p, size_t bytes)
{
	size_t all = (size_t) (bandwidth ? p->window : 1) * p->max_bytes;

	if (!local) {
		local = malloc(all);
		if (!local || MPI_Win_allocate((MPI_Aint) all, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &win)) {
			complain("no memory for %zu bytes; take smaller --sizes or a smaller --window", all);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
	bool ok = measure(p, bytes);
	if (!ok || next_size(bytes) > p->max_bytes) {
		MPI_Win_free(&win);
		free(local);
	}
	return ok;
}

int main(int argc, char **argv)
{
	static const char *const words[] = { "put-latency", "get-latency", "put-bw", "get-bw", NULL };
	struct p2p p = {
		.program = "nm_rma",
		.what = "one operation, us",
		.unit = "us",
		.help = help,
		.window_used = true,
		.min_bytes = 1,
		.max_bytes = 4 << 20,
		.iterations = 10000,
		.iterations_large = 1000,
		.warmup = 100,
		.warmup_large = 10,
		.window = 64,
		.time_limit = 10,
	};
	int what;

	program_name("nm_rma");
	what = p2p_words(words, argc, argv, help);
	if (what < 0)
		return what == -1 ? 0 : 2;
	get = what % 2;
	bandwidth = what >= 2;
	if (bandwidth) {
		p.what = "bandwidth, MB/s (1e6 bytes a second)";
		p.unit = "MB/s";
		p.iterations = 100;
		p.iterations_large = 20;
		p.warmup = 10;
		p.warmup_large = 2;
	}
	p.limit = MAX_BYTES;
	argv[1] = argv[0];
	return p2p_main(&p, argc - 1, argv + 1, first);
}
