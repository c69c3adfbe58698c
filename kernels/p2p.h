/* The parts that the MPI measurements share: options, output, and the ranks. */
#ifndef NM_P2P_H
#define NM_P2P_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include "summary.h"

/* Up to this size the number of iterations is the first of the two, as in OSU's programs. */
#define P2P_SMALL_BYTES 8192
#define P2P_MAX_BYTES	(1ULL << 30)

/* The number of ranks of a program: two, an even number, or any number from two on. */
enum p2p_ranks { P2P_TWO, P2P_PAIRS, P2P_MANY };

/*
 * A program's benchmark. Its defaults and its help are complete in each program, although they are similar, so that they
 * can be read there as they are used and printed.
 */
struct p2p {
	const char *program, *what, *unit, *help;
	bool window_used;
	enum p2p_ranks takes;
	uint64_t limit; /* of --sizes; 0: P2P_MAX_BYTES */
	bool per_rank;	/* a buffer holds max_bytes for each rank */
	uint64_t min_bytes, max_bytes;
	long iterations, iterations_large;
	long warmup, warmup_large;
	long window;
	double time_limit; /* seconds per size; 0: none */
	bool json;
	/* set by p2p_start() */
	int rank, ranks;
	int peer;	 /* the other rank of the pair: the lower half's in the upper half */
	double messages; /* per second, of the next row; 0: not known */
	long rows;
	unsigned char *send, *receive; /* max_bytes each (for each rank: per_rank), page-aligned */
};

/* Parses the options. Returns -1 to continue, else the status to exit with. */
int p2p_options(struct p2p *p, int argc, char **argv);

/* Called after MPI_Init: checks the number of ranks, prints the header. Returns as p2p_options(). */
int p2p_start(struct p2p *p);

/* Returns the iterations for a size whose warmup lasted seconds on rank 0; the same on all ranks. */
long p2p_iterations(const struct p2p *p, size_t bytes, long warmup, double seconds, int loops);
long p2p_warmup(const struct p2p *p, size_t bytes);

/*
 * Fills the buffers for a size; p2p_received() afterwards returns, on all ranks, whether all received their peer's
 * data.
 */
void p2p_fill(const struct p2p *p, size_t bytes);
bool p2p_received(const struct p2p *p, size_t bytes, bool receives);

/* Returns byte i of the message of a size that a rank sends. */
unsigned char p2p_pattern(int rank, size_t bytes, size_t i);

/* Returns, on all ranks, whether none of them reports a fault. */
bool p2p_right(const struct p2p *p, size_t bytes, bool wrong);

/* Prints a line (rank 0). */
void p2p_row(struct p2p *p, size_t bytes, long iterations, const struct summary *s);
void p2p_end(struct p2p *p);

/* Runs a whole program: options, ranks, measure() for each size until it returns false, the end. */
int p2p_main(struct p2p *p, int argc, char **argv, bool (*measure)(struct p2p *, size_t));

/* Returns room for n samples; exits without memory. */
double *p2p_samples(long n);

/*
 * Sends n windows of messages of a size. q and st have room for a window's requests. seconds: of each window; NULL:
 * not recorded.
 */
typedef void p2p_windows(const struct p2p *p, int bytes, long n, MPI_Request *q, MPI_Status *st, double *seconds);

/*
 * Measures windows of messages of a size, each with that many requests, after their warm-up. Returns the seconds per
 * window; sets their number, and the total seconds. Programs that measure single messages, or calls with their
 * samples in a separate run, do so themselves, because they differ in when the clock is read.
 */
struct summary p2p_time_windows(const struct p2p *p, size_t bytes, size_t requests, p2p_windows *windows, long *n,
				double *total);

/*
 * Returns the index of the first argument in words, which NULL ends. -1: the help was requested and printed; -2: the
 * argument is not one of them, and an error was printed.
 */
int p2p_words(const char *const *words, int argc, char **argv, const char *help);

#endif
