#define _GNU_SOURCE
#include "p2p.h"

#include <getopt.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	int c;

	program_name(p->program);
	opterr = 0;
	while (ok && (c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case SIZES:
			ok = value_sizes("sizes", optarg, P2P_MAX_BYTES, &p->min_bytes, &p->max_bytes);
			break;
		case ITERATIONS:
			ok = value_counts("iterations", optarg, 1000000000, &p->iterations,
					  &p->iterations_large);
			if (ok && (p->iterations < 1 || p->iterations_large < 1)) {
				complain("--iterations: at least 1");
				ok = false;
			}
			break;
		case WARMUP:
			ok = value_counts("warmup", optarg, 1000000000, &p->warmup, &p->warmup_large);
			break;
		case WINDOW:
			if (!p->window_used) {
				complain("--window is an option of nm_bw");
				ok = false;
			} else {
				ok = value_count("window", optarg, 1, 1 << 16, &p->window);
			}
			break;
		case TIME_LIMIT:
			ok = value_seconds("time-limit", optarg, 0, 86400, &p->time_limit);
			break;
		case JSON:
			p->json = true;
			break;
		case 'h':
			if (first_rank())
				fputs(p->help, stdout);
			return 0;
		default:
			complain("%s: no such option, or its value is missing; see --help", argv[optind - 1]);
			ok = false;
		}
	}
	if (ok && optind < argc) {
		complain("%s: this program takes options only; see --help", argv[optind]);
		ok = false;
	}
	return ok ? -1 : 2;
}

/* The library's name and version: the first line of what it says, up to a comma, blanks squeezed. */
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
		for (int i = 0; i < 2; i++) {
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
	for (int i = 0; i < 2; i++)
		printf("# rank %d: %s%s\n", i, places[i].host,
		       places[i].emulated ? " (emulated: timings are not meaningful)" : "");
	printf("# %10s %10s %12s %12s %12s %12s\n", "bytes", "iterations", "mean", "min", "median", "p99");
}

int p2p_start(struct p2p *p)
{
	struct place mine, places[2];
	int size, len;

	MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2) {
		if (p->rank == 0)
			fprintf(stderr, "%s: it measures between two ranks, and there %s %d; start it with mpirun -n 2\n",
				p->program, size == 1 ? "is" : "are", size);
		return 2;
	}
	p->peer = 1 - p->rank;
	memset(&mine, 0, sizeof(mine));
	MPI_Get_processor_name(mine.host, &len);
	mine.emulated = emulated();
	MPI_Gather(&mine, sizeof(mine), MPI_BYTE, places, sizeof(mine), MPI_BYTE, 0, MPI_COMM_WORLD);

	size_t bytes = p->max_bytes ? p->max_bytes : 1;
	void *buf[2] = { NULL, NULL };
	int failed = posix_memalign(&buf[0], 4096, bytes) || posix_memalign(&buf[1], 4096, bytes);
	int any = 0;

	MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any) {
		if (p->rank == 0)
			fprintf(stderr, "%s: no memory for two buffers of %zu bytes; take smaller --sizes\n",
				p->program, bytes);
		free(buf[0]);
		free(buf[1]);
		return 1;
	}
	p->send = buf[0];
	p->receive = buf[1];
	memset(p->send, 1, bytes);
	memset(p->receive, 2, bytes);
	if (p->rank == 0) {
		header(p, places);
		fflush(stdout);
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
		double fit = p->time_limit / loops / (seconds / (double)warmup);

		if (fit < (double)n)
			n = fit < 10 ? (n < 10 ? n : 10) : (long)fit;
	}
	MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	return n;
}

/* What rank sends at place i of a message of a size. */
static unsigned char pattern(int rank, size_t bytes, size_t i)
{
	return (unsigned char)(i * 31 + (i >> 8) * 7 + bytes % 251 + 101 * (size_t)rank + 1);
}

void p2p_fill(const struct p2p *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p->send[i] = pattern(p->rank, bytes, i);
	memset(p->receive, 0, bytes);
}

bool p2p_received(const struct p2p *p, size_t bytes, bool receives)
{
	int wrong = 0, any = 0;

	for (size_t i = 0; receives && i < bytes && !wrong; i++)
		wrong = p->receive[i] != pattern(p->peer, bytes, i);
	MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any && p->rank == 0)
		fprintf(stderr, "%s: a message of %zu bytes did not arrive as it was sent\n", p->program, bytes);
	return !any;
}

void p2p_row(struct p2p *p, size_t bytes, long iterations, const struct summary *s)
{
	if (p->rank)
		return;
	if (p->json)
		printf("%s\n{\"bytes\":%zu,\"iterations\":%ld,\"mean\":%.6g,\"min\":%.6g,\"median\":%.6g,\"p99\":%.6g}",
		       p->rows ? "," : "", bytes, iterations, s->mean, s->min, s->median, s->p99);
	else
		printf("%12zu %10ld %12.3f %12.3f %12.3f %12.3f\n", bytes, iterations, s->mean, s->min,
		       s->median, s->p99);
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
