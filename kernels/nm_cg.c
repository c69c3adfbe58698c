/*
 * Conjugate gradients on a Poisson problem. The result is checked, and is identical to the last bit for every number
 * of ranks, every MPI library and every processor.
 */
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] = "nm_cg - solve a Poisson problem by conjugate gradients and check the result\n"
			   "\n"
			   "Usage: mpirun -n RANKS nm_cg [OPTION]...\n"
			   "\n"
			   "Solves -(u_xx + u_yy) = 2 (x (1 - x) + y (1 - y)) on the unit square, u = 0 on its edge,\n"
			   "with the 5-point stencil on a grid of N by N inner points. The exact solution,\n"
			   "u = x (1 - x) y (1 - y), is that of the discrete problem as well, so the error found is\n"
			   "the solver's own. The rows of the grid are shared out among the ranks, which exchange\n"
			   "their border rows by nonblocking messages.\n"
			   "\n"
			   "The result does not depend on the number of ranks, the MPI library, the processor or\n"
			   "whether it is emulated, to the last bit: a dot product is summed up row by row, each\n"
			   "rank gets the sums of all rows and adds them in the rows' order (no MPI reduction is\n"
			   "used, whose order is the library's); the program is compiled without fused\n"
			   "multiply-add, and of the mathematical functions it uses the square root alone, which\n"
			   "IEEE 754 defines exactly.\n"
			   "\n"
			   "Options:\n"
			   "      --grid N              inner points in each direction, 2 to 16384 (default 256)\n"
			   "      --tolerance X         stop when the residual, relative to the right-hand side, is\n"
			   "                            not above X (default 1e-10)\n"
			   "      --max-iterations N    give up after N (default 10 times the grid's N)\n"
			   "      --expect CHECKSUM     the checksum must be this one (16 hexadecimal digits)\n"
			   "      --json                one JSON document instead of the lines\n"
			   "  -h, --help                this text\n"
			   "\n"
			   "Output: lines that start with # say where it ran and how long it took; the others are\n"
			   "the result and are the same wherever it ran:\n"
			   "  iterations   how many were made\n"
			   "  residual     |b - A x| / |b|, computed anew at the end; decimal and exact\n"
			   "  error        |x - u| / |u| in the L2 norm\n"
			   "  checksum     of the bits of x: FNV-1a of the FNV-1a of each row\n"
			   "\n"
			   "Exit status: 0; 1 if the result is wrong (it did not converge; the error is above\n"
			   "tolerance * (N + 1)^2, which bounds it for this matrix; another checksum than expected);\n"
			   "2 for a wrong option or more ranks than rows.\n"
			   "\n"
			   "Example:\n"
			   "  mpirun -n 4 nm_cg --grid 512\n";

struct options {
	long grid, max_iterations;
	double tolerance;
	const char *expect;
	bool json;
};

/*
 * One rank's share of the grid: rows first to first + rows - 1 of n. A field has rows + 2 rows of n points; the first
 * and the last are the neighbours' border rows, or zeroes.
 */
struct grid {
	int n, first, rows, rank, ranks;
	int *counts, *starts; /* rows of every rank, and their first */
	double *sums, *all;   /* of this rank's rows, and of all n */
};

struct result {
	long iterations;
	bool converged;
	double residual, error, seconds;
	uint64_t checksum;
};

static int read_options(struct options *o, int argc, char **argv)
{
	enum { GRID = 256, TOLERANCE, MAX_ITERATIONS, EXPECT, JSON };
	static const struct option options[] = {
		{ "grid", required_argument, NULL, GRID },
		{ "tolerance", required_argument, NULL, TOLERANCE },
		{ "max-iterations", required_argument, NULL, MAX_ITERATIONS },
		{ "expect", required_argument, NULL, EXPECT },
		{ "json", no_argument, NULL, JSON },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool ok = true;
	int c, status;

	while (ok && (c = next_option(argc, argv, "h", options, help, &status)) != -1) {
		switch (c) {
		case GRID: ok = value_count("grid", optarg, 2, 16384, &o->grid); break;
		case TOLERANCE: ok = value_seconds("tolerance", optarg, 1e-15, 0.1, &o->tolerance); break;
		case MAX_ITERATIONS:
			ok = value_count("max-iterations", optarg, 1, 1000000000, &o->max_iterations);
			break;
		case EXPECT:
			o->expect = optarg;
			if (strlen(optarg) != 16 || strspn(optarg, "0123456789abcdef") != 16) {
				complain("--expect: \"%s\" is not a checksum of 16 hexadecimal digits", optarg);
				ok = false;
			}
			break;
		case JSON: o->json = true; break;
		}
	}
	if (!o->max_iterations)
		o->max_iterations = 10 * o->grid;
	return ok ? status : 2;
}

static void *allocate(size_t count, size_t size)
{
	void *p = calloc(count, size);

	if (!p) {
		fprintf(stderr, "nm_cg: no memory for %zu bytes; take a smaller --grid or more ranks\n", count * size);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return p;
}

static double *field(const struct grid *g)
{
	return allocate((size_t) (g->rows + 2) * (size_t) g->n, sizeof(double));
}

/* Returns the points of row i of a field, 0 being this rank's first. */
static double *row(const struct grid *g, double *f, int i)
{
	return f + (size_t) (i + 1) * (size_t) g->n;
}

static void share_out(struct grid *g, int n)
{
	g->n = n;
	g->counts = allocate((size_t) g->ranks, sizeof(int));
	g->starts = allocate((size_t) g->ranks, sizeof(int));
	for (int r = 0, first = 0; r < g->ranks; r++) {
		g->counts[r] = n / g->ranks + (r < n % g->ranks);
		g->starts[r] = first;
		first += g->counts[r];
	}
	g->first = g->starts[g->rank];
	g->rows = g->counts[g->rank];
	g->sums = allocate((size_t) g->rows, sizeof(double));
	g->all = allocate((size_t) n, sizeof(double));
}

/* Returns the sum of g->sums over all rows of all ranks, added in the rows' order. */
static double total(struct grid *g)
{
	double sum = 0;

	MPI_Allgatherv(g->sums, g->rows, MPI_DOUBLE, g->all, g->counts, g->starts, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int i = 0; i < g->n; i++)
		sum += g->all[i];
	return sum;
}

static double dot(struct grid *g, double *a, double *b)
{
	for (int i = 0; i < g->rows; i++) {
		const double *x = row(g, a, i), *y = row(g, b, i);
		double sum = 0;

		for (int j = 0; j < g->n; j++)
			sum += x[j] * y[j];
		g->sums[i] = sum;
	}
	return total(g);
}

/* Computes row i of the matrix times p. */
static void stencil(const struct grid *g, double *p, double *out, int i)
{
	const double *c = row(g, p, i), *up = row(g, p, i - 1), *down = row(g, p, i + 1);
	double *o = row(g, out, i);
	int n = g->n;

	for (int j = 0; j < n; j++) {
		double left = j > 0 ? c[j - 1] : 0, right = j < n - 1 ? c[j + 1] : 0;

		o[j] = 4 * c[j] - left - right - up[j] - down[j];
	}
}

/* out = A p; the border rows of p are exchanged during the computation. */
static void apply(const struct grid *g, double *p, double *out)
{
	int above = g->rank > 0 ? g->rank - 1 : MPI_PROC_NULL;
	int below = g->rank < g->ranks - 1 ? g->rank + 1 : MPI_PROC_NULL;
	MPI_Request q[4];
	MPI_Status ignored[4]; /* MPICH's MPI_STATUSES_IGNORE makes gcc 12 warn */

	MPI_Irecv(row(g, p, -1), g->n, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &q[0]);
	MPI_Irecv(row(g, p, g->rows), g->n, MPI_DOUBLE, below, 2, MPI_COMM_WORLD, &q[1]);
	MPI_Isend(row(g, p, 0), g->n, MPI_DOUBLE, above, 2, MPI_COMM_WORLD, &q[2]);
	MPI_Isend(row(g, p, g->rows - 1), g->n, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &q[3]);
	for (int i = 1; i < g->rows - 1; i++)
		stencil(g, p, out, i);
	MPI_Waitall(4, q, ignored);
	stencil(g, p, out, 0);
	if (g->rows > 1)
		stencil(g, p, out, g->rows - 1);
}

/* y = y + a x */
static void add(const struct grid *g, double *y, double a, double *x)
{
	double *to = row(g, y, 0);
	const double *from = row(g, x, 0);

	for (size_t k = 0; k < (size_t) g->rows * (size_t) g->n; k++)
		to[k] = to[k] + a * from[k];
}

/* Computes the exact solution u, and the right-hand side b: h^2 times the problem's. */
static void problem(const struct grid *g, double *u, double *b)
{
	double m = g->n + 1, h = 1 / m;

	for (int i = 0; i < g->rows; i++) {
		double y = (g->first + i + 1) / m, qy = y * (1 - y);

		for (int j = 0; j < g->n; j++) {
			double x = (j + 1) / m, qx = x * (1 - x);

			row(g, u, i)[j] = qx * qy;
			row(g, b, i)[j] = h * h * (2 * (qx + qy));
		}
	}
}

static uint64_t fnv1a(uint64_t hash, uint64_t bits)
{
	for (int i = 0; i < 8; i++) {
		hash ^= bits & 0xff;
		hash *= 0x100000001b3;
		bits >>= 8;
	}
	return hash;
}

static uint64_t checksum(const struct grid *g, double *x)
{
	const uint64_t start = 0xcbf29ce484222325;
	uint64_t *mine = allocate((size_t) g->rows, sizeof(*mine));
	uint64_t *all = allocate((size_t) g->n, sizeof(*all));
	uint64_t hash = start, bits;

	for (int i = 0; i < g->rows; i++) {
		mine[i] = start;
		for (int j = 0; j < g->n; j++) {
			memcpy(&bits, &row(g, x, i)[j], sizeof(bits));
			mine[i] = fnv1a(mine[i], bits);
		}
	}
	MPI_Allgatherv(mine, g->rows, MPI_UINT64_T, all, g->counts, g->starts, MPI_UINT64_T, MPI_COMM_WORLD);
	for (int i = 0; i < g->n; i++)
		hash = fnv1a(hash, all[i]);
	free(mine);
	free(all);
	return hash;
}

static struct result solve(struct grid *g, const struct options *o)
{
	double *u = field(g), *b = field(g), *x = field(g), *r = field(g), *p = field(g), *ap = field(g);
	size_t bytes = (size_t) g->rows * (size_t) g->n * sizeof(double);
	struct result res = { 0 };
	double bb, rr, uu, start;

	problem(g, u, b);
	memcpy(row(g, r, 0), row(g, b, 0), bytes);
	memcpy(row(g, p, 0), row(g, b, 0), bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	bb = rr = dot(g, r, r);
	while (res.iterations < o->max_iterations && !(sqrt(rr) <= o->tolerance * sqrt(bb))) {
		double alpha, before = rr;

		apply(g, p, ap);
		alpha = rr / dot(g, p, ap);
		add(g, x, alpha, p);
		add(g, r, -alpha, ap);
		rr = dot(g, r, r);
		/* p = r + beta p */
		for (size_t k = 0; k < bytes / sizeof(double); k++)
			row(g, p, 0)[k] = row(g, r, 0)[k] + rr / before * row(g, p, 0)[k];
		res.iterations++;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	res.seconds = now() - start;
	res.converged = sqrt(rr) <= o->tolerance * sqrt(bb);

	/* The residual is computed from x itself, because the recurrence's could hide a mistake. */
	apply(g, x, ap);
	memcpy(row(g, r, 0), row(g, b, 0), bytes);
	add(g, r, -1, ap);
	res.residual = sqrt(dot(g, r, r)) / sqrt(bb);
	res.checksum = checksum(g, x);
	uu = dot(g, u, u);
	add(g, x, -1, u);
	res.error = sqrt(dot(g, x, x)) / sqrt(uu);
	free(u);
	free(b);
	free(x);
	free(r);
	free(p);
	free(ap);
	return res;
}

static void print_text(const struct grid *g, const struct result *res, const char *hosts, int emulated_ranks)
{
	printf("# nm_cg: conjugate gradients, 5-point Poisson problem, grid %d x %d\n", g->n, g->n);
	printf("# %d rank%s on %s%s\n", g->ranks, g->ranks == 1 ? "" : "s", hosts,
	       emulated_ranks ? " (emulated: timings are not meaningful)" : "");
	printf("# time %.6f s\n", res->seconds);
	printf("iterations %ld\n", res->iterations);
	printf("residual   %.17g (%a)\n", res->residual, res->residual);
	printf("error      %.17g (%a)\n", res->error, res->error);
	printf("checksum   %016" PRIx64 "\n", res->checksum);
}

static void print_json(const struct grid *g, const struct result *res, const char *hosts, int emulated_ranks)
{
	printf("{\"program\":\"nm_cg\",\"grid\":%d,\"ranks\":%d,\"hosts\":", g->n, g->ranks);
	json_string(stdout, hosts);
	printf(",\"emulated\":%s,\"seconds\":%.6f,\"iterations\":%ld,\"converged\":%s,\n"
	       "\"residual\":%.17g,\"residualHex\":\"%a\",\"error\":%.17g,\"errorHex\":\"%a\","
	       "\"checksum\":\"%016" PRIx64 "\"}\n",
	       emulated_ranks ? "true" : "false", res->seconds, res->iterations, res->converged ? "true" : "false",
	       res->residual, res->residual, res->error, res->error, res->checksum);
}

/* Returns the hosts of the ranks in their order, each once per run of equal ones: "vm0 vm1". */
static char *where(const struct grid *g, int *emulated_ranks)
{
	enum { LEN = MPI_MAX_PROCESSOR_NAME + 1 };
	char name[LEN] = "", *names = allocate((size_t) g->ranks, LEN), *out;
	int len, mine = emulated();
	size_t used = 0;

	MPI_Get_processor_name(name, &len);
	MPI_Gather(name, LEN, MPI_CHAR, names, LEN, MPI_CHAR, 0, MPI_COMM_WORLD);
	MPI_Allreduce(&mine, emulated_ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	out = allocate((size_t) g->ranks, LEN + 1);
	for (int r = 0; g->rank == 0 && r < g->ranks; r++) {
		const char *host = names + (size_t) r * LEN;

		if (r == 0 || strcmp(host, host - LEN))
			used += (size_t) sprintf(out + used, "%s%s", r ? " " : "", host);
	}
	free(names);
	return out;
}

/* Returns the fault of the result, or NULL. */
static const char *wrong(const struct grid *g, const struct options *o, const struct result *res)
{
	char sum[17];

	if (!res->converged)
		return "it did not converge";
	/* |e| / |u| <= cond(A) |r| / |b|, and cond(A) < (n + 1)^2 / 2. */
	if (!(res->error <= o->tolerance * (g->n + 1.0) * (g->n + 1.0)))
		return "the error against the exact solution is too large";
	snprintf(sum, sizeof(sum), "%016" PRIx64, res->checksum);
	if (o->expect && strcmp(sum, o->expect))
		return "the checksum is not the expected one";
	return NULL;
}

int main(int argc, char **argv)
{
	struct options o = { .grid = 256, .tolerance = 1e-10 };
	struct grid g = { 0 };
	const char *problem_found;
	int status, emulated_ranks = 0;
	struct result res;
	char *hosts;

	program_name("nm_cg");
	status = read_options(&o, argc, argv);
	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &g.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &g.ranks);
	if (g.ranks > o.grid) {
		if (g.rank == 0)
			fprintf(stderr, "nm_cg: %d ranks for %ld rows; take a larger --grid or fewer ranks\n", g.ranks,
				o.grid);
		MPI_Finalize();
		return 2;
	}
	share_out(&g, (int) o.grid);
	res = solve(&g, &o);
	hosts = where(&g, &emulated_ranks);
	problem_found = wrong(&g, &o, &res);
	if (g.rank == 0) {
		(o.json ? print_json : print_text)(&g, &res, hosts, emulated_ranks);
		fflush(stdout);
		if (problem_found)
			fprintf(stderr, "nm_cg: wrong result: %s\n", problem_found);
	}
	free(hosts);
	free(g.counts);
	free(g.starts);
	free(g.sums);
	free(g.all);
	MPI_Finalize();
	return problem_found ? 1 : 0;
}
