#include "p2p.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "values.h"
#include "where.h"

int p2p_options(struct p2p *p, int argc, char **argv)
{
	enum { SIZES = 256, ITERATIONS, WARMUP, WINDOW, TIME_LIMIT, JSON };
	static const struct option options[] = {
		{ "sizes", required_argument, NULL, SIZES },
		{ "iterations", required_argument, NULL, ITERATIONS },
		{ "warmup", required_argument, NULL, WARMUP },
		{ "window", required_argument, NULL, WINDOW },
		{ "time-limit", required_argument, NULL, TIME_LIMIT },
		{ "json", no_argument, NULL, JSON },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool ok = true;
	int c, status;

	program_name(p->program);
	while (ok && (c = next_option(argc, argv, "h", options, p->help, &status)) != -1) {
		switch (c) {
		case SIZES:
			ok = value_sizes("sizes", optarg, p->limit ? p->limit : P2P_MAX_BYTES, &p->min_bytes,
					 &p->max_bytes);
			break;
		case ITERATIONS:
			ok = value_counts("iterations", optarg, 1000000000, &p->iterations, &p->iterations_large);
			if (ok && (p->iterations < 1 || p->iterations_large < 1)) {
				complain("--iterations: at least 1");
				ok = false;
			}
			break;
		case WARMUP: ok = value_counts("warmup", optarg, 1000000000, &p->warmup, &p->warmup_large); break;
		case WINDOW:
			if (!p->window_used) {
				complain("--window is an option of the bandwidth programs");
				ok = false;
			} else {
				ok = value_count("window", optarg, 1, 1 << 16, &p->window);
			}
			break;
		case TIME_LIMIT: ok = value_seconds("time-limit", optarg, 0, 86400, &p->time_limit); break;
		case JSON: p->json = true; break;
		}
	}
	return ok ? status : 2;
}

/* Returns the library's name and version: the first line of its own text, up to a comma, blanks squeezed. */
static void library(char *out, size_t size)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
	size_t used = 0;
	int len = 0;

	MPI_Get_library_version(text, &len);
	text[strcspn(text, "\n,")] = '\0';
	for (const char *t = text; *t && used < size - 1; t++) {
		bool blank = *t == ' ' || *t == '\t';

		if (!blank)
			out[used++] = *t;
		else if (used && out[used - 1] != ' ')
			out[used++] = ' ';
	}
	out[used] = '\0';
}

struct place {
	char host[MPI_MAX_PROCESSOR_NAME + 1];
	int emulated;
};

static void header(const struct p2p *p, const struct place *places)
{
	char lib[256];

	library(lib, sizeof(lib));
	if (p->json) {
		printf("{\"program\":\"%s\",\"unit\":\"%s\",\"mpi\":", p->program, p->unit);
		json_string(stdout, lib);
		printf(",\"ranks\":[");
		for (int i = 0; i < p->ranks; i++) {
			printf("%s{\"rank\":%d,\"host\":", i ? "," : "", i);
			json_string(stdout, places[i].host);
			printf(",\"emulated\":%s}", places[i].emulated ? "true" : "false");
		}
		printf("]");
		if (p->window_used)
			printf(",\"window\":%ld", p->window);
		printf(",\"results\":[");
		return;
	}
	printf("# %s: %s\n# MPI: %s\n", p->program, p->what, lib);
	for (int i = 0; i < p->ranks; i++)
		printf("# rank %d: %s%s\n", i, places[i].host,
		       places[i].emulated ? " (emulated: timings are not meaningful)" : "");
	printf("# %10s %10s %12s %12s %12s %12s\n", "bytes", "iterations", "mean", "min", "median", "p99");
}

/* Returns the fault of the number of ranks, or NULL. */
static const char *wrong_ranks(const struct p2p *p)
{
	switch (p->takes) {
	case P2P_TWO: return p->ranks == 2 ? NULL : "it measures between two ranks";
	case P2P_PAIRS: return p->ranks % 2 == 0 ? NULL : "it measures between pairs of ranks";
	default: return p->ranks > 1 ? NULL : "it measures among several ranks";
	}
}

int p2p_start(struct p2p *p)
{
	struct place mine, *places = NULL;
	const char *wrong;
	int len;

	MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &p->ranks);
	wrong = wrong_ranks(p);
	if (wrong) {
		if (p->rank == 0)
			fprintf(stderr, "%s: %s, and there %s %d; start it with mpirun -n 2\n", p->program, wrong,
				p->ranks == 1 ? "is" : "are", p->ranks);
		return 2;
	}
	p->peer = (p->rank + p->ranks / 2) % p->ranks;
	memset(&mine, 0, sizeof(mine));
	MPI_Get_processor_name(mine.host, &len);
	mine.emulated = emulated();

	size_t bytes = (p->max_bytes ? p->max_bytes : 1) * (size_t) (p->per_rank ? p->ranks : 1);
	void *buf[2] = { NULL, NULL };
	int failed = posix_memalign(&buf[0], 4096, bytes) || posix_memalign(&buf[1], 4096, bytes);
	int any = 0;

	if (p->rank == 0) {
		places = calloc((size_t) p->ranks, sizeof(*places));
		failed |= !places;
	}
	MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any) {
		if (p->rank == 0)
			fprintf(stderr, "%s: no memory for two buffers of %zu bytes; take smaller --sizes\n",
				p->program, bytes);
		free(buf[0]);
		free(buf[1]);
		free(places);
		return 1;
	}
	MPI_Gather(&mine, sizeof(mine), MPI_BYTE, places, sizeof(mine), MPI_BYTE, 0, MPI_COMM_WORLD);
	p->send = buf[0];
	p->receive = buf[1];
	memset(p->send, 1, bytes);
	memset(p->receive, 2, bytes);
	if (places) { /* of rank 0 */
		header(p, places);
		fflush(stdout);
		free(places);
	}
	return -1;
}

long p2p_warmup(const struct p2p *p, size_t bytes)
{
	return bytes > P2P_SMALL_BYTES ? p->warmup_large : p->warmup;
}

long p2p_iterations(const struct p2p *p, size_t bytes, long warmup, double seconds, int loops)
{
	long n = bytes > P2P_SMALL_BYTES ? p->iterations_large : p->iterations;

	if (p->time_limit > 0 && warmup > 0 && seconds > 0) {
		double fit = p->time_limit / loops / (seconds / (double) warmup);

		if (fit < (double) n)
			n = fit < 10 ? (n < 10 ? n : 10) : (long) fit;
	}
	MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	return n;
}

/* Returns byte i of the message of a size that rank sends. */
unsigned char p2p_pattern(int rank, size_t bytes, size_t i)
{
	return (unsigned char) (i * 31 + (i >> 8) * 7 + bytes % 251 + 101 * (size_t) rank + 1);
}

void p2p_fill(const struct p2p *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p->send[i] = p2p_pattern(p->rank, bytes, i);
	memset(p->receive, 0, bytes);
}

bool p2p_received(const struct p2p *p, size_t bytes, bool receives)
{
	bool wrong = false;

	for (size_t i = 0; receives && i < bytes && !wrong; i++)
		wrong = p->receive[i] != p2p_pattern(p->peer, bytes, i);
	return p2p_right(p, bytes, wrong);
}

bool p2p_right(const struct p2p *p, size_t bytes, bool wrong)
{
	int mine = wrong, any = 0;

	MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any && p->rank == 0)
		fprintf(stderr, "%s: a message of %zu bytes did not arrive as it was sent\n", p->program, bytes);
	return !any;
}

void p2p_row(struct p2p *p, size_t bytes, long iterations, const struct summary *s)
{
	if (p->rank)
		return;
	if (p->json) {
		printf("%s\n{\"bytes\":%zu,\"iterations\":%ld,\"mean\":%.6g,\"min\":%.6g,\"median\":%.6g,\"p99\":%.6g",
		       p->rows ? "," : "", bytes, iterations, s->mean, s->min, s->median, s->p99);
		if (p->messages > 0)
			printf(",\"messages\":%.6g", p->messages);
		printf("}");
	} else {
		printf("%12zu %10ld %12.3f %12.3f %12.3f %12.3f\n", bytes, iterations, s->mean, s->min, s->median,
		       s->p99);
	}
	fflush(stdout);
	p->rows++;
}

void p2p_end(struct p2p *p)
{
	if (p->rank == 0 && p->json)
		printf("\n]}\n");
	fflush(stdout);
	free(p->send);
	free(p->receive);
}

int p2p_main(struct p2p *p, int argc, char **argv, bool (*measure)(struct p2p *, size_t))
{
	int status = p2p_options(p, argc, argv);

	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	status = p2p_start(p);
	if (status < 0) {
		status = 0;
		for (size_t b = p->min_bytes; b <= p->max_bytes && !status; b = next_size(b))
			status = !measure(p, b);
		p2p_end(p);
	}
	MPI_Finalize();
	return status;
}

double *p2p_samples(long n)
{
	double *samples = malloc((size_t) n * sizeof(*samples));

	if (!samples)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return samples;
}

struct summary p2p_time_windows(const struct p2p *p, size_t bytes, size_t requests, p2p_windows *windows, long *n,
				double *total)
{
	MPI_Request *q = malloc(requests * sizeof(*q));
	MPI_Status *st = malloc(requests * sizeof(*st));
	long warmup = p2p_warmup(p, bytes);
	struct summary s;
	double start, *seconds;

	if (!q || !st)
		MPI_Abort(MPI_COMM_WORLD, 1);
	p2p_fill(p, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	windows(p, (int) bytes, warmup, q, st, NULL);
	*n = p2p_iterations(p, bytes, warmup, now() - start, 1);
	seconds = p2p_samples(*n);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	windows(p, (int) bytes, *n, q, st, seconds);
	*total = now() - start;
	s = summarize(seconds, (size_t) *n);
	free(seconds);
	free(q);
	free(st);
	return s;
}

int p2p_words(const char *const *words, int argc, char **argv, const char *help)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		if (first_rank())
			fputs(help, stdout);
		return -1;
	}
	for (int i = 0; argc > 1 && words[i]; i++) {
		if (!strcmp(argv[1], words[i]))
			return i;
	}
	complain("%s: the first word says what is measured; see --help", argc > 1 ? argv[1] : "(nothing)");
	return -2;
}
