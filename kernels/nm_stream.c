/* Sustainable memory bandwidth, by the method of McCalpin's STREAM, with a checked result. */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "options.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] = "nm_stream - sustainable memory bandwidth of this machine's cores\n"
			   "\n"
			   "Usage: OMP_NUM_THREADS=N nm_stream [OPTION]...\n"
			   "\n"
			   "Four loops over three arrays of doubles, shared out among OpenMP's threads: copy\n"
			   "(c = a), scale (b = 3 c), add (c = a + b), triad (a = b + 3 c). A loop's bandwidth is\n"
			   "the bytes that it names, 16 or 24 an element, by the least time of all rounds but the\n"
			   "first, in MB/s (1e6 bytes a second), as in McCalpin's STREAM. The threads that use the\n"
			   "arrays write them first, so that each has its part on its own NUMA node. At the end\n"
			   "the arrays are compared with what they must hold.\n"
			   "\n"
			   "Options:\n"
			   "      --bytes SIZE   of each array (default 256MiB; take four times the last-level cache)\n"
			   "      --rounds N     at least 2 (default 10)\n"
			   "      --json         one JSON document instead of the table\n"
			   "  -h, --help         this text\n"
			   "\n"
			   "Exit status: 0; 1 if the result is wrong, or without memory; 2 for a wrong option.\n"
			   "\n"
			   "Example:\n"
			   "  OMP_NUM_THREADS=12 nm_stream --bytes 1GiB\n";

static const char *const names[4] = { "copy", "scale", "add", "triad" };
static const int words[4] = { 2, 2, 3, 3 }; /* doubles that a loop moves per element */

struct arrays {
	double *a, *b, *c;
	long n;
};

/* One loop; the compiler must see plain arrays that do not overlap. */
static void loop(const struct arrays *x, int which)
{
	double *restrict a = x->a, *restrict b = x->b, *restrict c = x->c;
	const double scalar = 3;
	long n = x->n;

	switch (which) {
	case 0:
#pragma omp parallel for schedule(static)
		for (long i = 0; i < n; i++)
			c[i] = a[i];
		break;
	case 1:
#pragma omp parallel for schedule(static)
		for (long i = 0; i < n; i++)
			b[i] = scalar * c[i];
		break;
	case 2:
#pragma omp parallel for schedule(static)
		for (long i = 0; i < n; i++)
			c[i] = a[i] + b[i];
		break;
	default:
#pragma omp parallel for schedule(static)
		for (long i = 0; i < n; i++)
			a[i] = b[i] + scalar * c[i];
	}
}

static void first_touch(const struct arrays *x)
{
#pragma omp parallel for schedule(static)
	for (long i = 0; i < x->n; i++) {
		x->a[i] = 1;
		x->b[i] = 2;
		x->c[i] = 0;
	}
}

/* Returns the largest error relative to the result of the same loops for one element. */
static double error(const struct arrays *x, long rounds)
{
	double a = 1, b = 2, c = 0, worst = 0;

	for (long r = 0; r < rounds; r++) {
		c = a;
		b = 3 * c;
		c = a + b;
		a = b + 3 * c;
	}
#pragma omp parallel for reduction(max : worst)
	for (long i = 0; i < x->n; i++) {
		double e = fmax(fmax(fabs(x->a[i] - a) / a, fabs(x->b[i] - b) / b), fabs(x->c[i] - c) / c);

		worst = fmax(worst, isnan(e) ? INFINITY : e);
	}
	return worst;
}

static int options(int argc, char **argv, uint64_t *bytes, long *rounds, bool *json)
{
	static const struct option list[] = {
		{ "bytes", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool ok = true;
	int c, status;

	while (ok && (c = next_option(argc, argv, "h", list, help, &status)) != -1) {
		switch (c) {
		case 'b': ok = value_size("bytes", optarg, 1 << 12, 1ULL << 40, bytes); break;
		case 'r': /* values grow 15-fold per round: above 260 they exceed the range of doubles */
			ok = value_count("rounds", optarg, 2, 250, rounds);
			break;
		case 'j': *json = true; break;
		}
	}
	return ok ? status : 2;
}

static void print(const struct arrays *x, double times[4][250], long rounds, bool json)
{
	if (json)
		printf("{\"program\":\"nm_stream\",\"unit\":\"MB/"
		       "s\",\"threads\":%d,\"bytes\":%zu,\"emulated\":%s,\"results\":[",
		       omp_get_max_threads(), (size_t) x->n * sizeof(double), emulated() ? "true" : "false");
	else
		printf("# nm_stream: %d threads, arrays of %zu bytes, MB/s (1e6 bytes a second)%s\n# %6s %12s %12s "
		       "%12s\n",
		       omp_get_max_threads(), (size_t) x->n * sizeof(double),
		       emulated() ? " (emulated: timings are not meaningful)" : "", "loop", "best", "median", "least");
	for (int k = 0; k < 4; k++) {
		struct summary s = summarize(times[k] + 1, (size_t) rounds - 1);
		double mb = (double) x->n * words[k] * sizeof(double) / 1e6;

		printf(json ? "%s\n{\"loop\":\"%s\",\"best\":%.6g,\"median\":%.6g,\"least\":%.6g}"
			    : "%s%8s %12.1f %12.1f %12.1f\n",
		       json && k ? "," : "", names[k], mb / s.min, mb / s.median, mb / s.max);
	}
	if (json)
		printf("\n]}\n");
}

int main(int argc, char **argv)
{
	static double times[4][250];
	struct arrays x = { 0 };
	uint64_t bytes = 256 << 20;
	long rounds = 10;
	bool json = false;
	int status;

	program_name("nm_stream");
	status = options(argc, argv, &bytes, &rounds, &json);
	if (status >= 0)
		return status;
	x.n = (long) (bytes / sizeof(double));
	bytes = (uint64_t) x.n * sizeof(double);
	if (posix_memalign((void **) &x.a, 4096, bytes) || posix_memalign((void **) &x.b, 4096, bytes) ||
	    posix_memalign((void **) &x.c, 4096, bytes)) {
		complain("no memory for three arrays of %llu bytes; take smaller --bytes", (unsigned long long) bytes);
		return 1;
	}
	first_touch(&x);
	for (long r = 0; r < rounds; r++) {
		for (int k = 0; k < 4; k++) {
			double start = now();

			loop(&x, k);
			times[k][r] = now() - start;
		}
	}
	if (!(error(&x, rounds) <= 1e-13)) {
		complain("wrong result: the arrays do not hold what the loops give");
		return 1;
	}
	print(&x, times, rounds, json);
	free(x.a);
	free(x.b);
	free(x.c);
	return 0;
}
