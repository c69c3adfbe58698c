/* What the MPI measurements share: options, output, and the ranks. */
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

/* How many ranks a program takes: two, an even number, or any number from two on. */
enum p2p_ranks { P2P_TWO, P2P_PAIRS, P2P_MANY };

/* help stands whole in each program, though their options are much alike: it is read there as it is printed. */
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
	double time_limit; /* seconds for a size; 0: none */
	bool json;
	/* from here on set by p2p_start() */
	int rank, ranks;
	int peer;	 /* the other rank of the pair: the lower half's in the upper half */
	double messages; /* a second, of the row to come; 0: not known */
	long rows;
	unsigned char *send, *receive; /* max_bytes each (for each rank: per_rank), page-aligned */
};

/* Reads the options. Returns -1 to go on, else the status to exit with. */
int p2p_options(struct p2p *p, int argc, char **argv);

/* After MPI_Init: checks the number of ranks, prints the header. As p2p_options(). */
int p2p_start(struct p2p *p);

/* Iterations for a size of which warmup took seconds on rank 0; the same on all ranks. */
long p2p_iterations(const struct p2p *p, size_t bytes, long warmup, double seconds, int loops);
long p2p_warmup(const struct p2p *p, size_t bytes);

/* Fills the buffers for a size; afterwards returns, on all ranks, whether all got their peer's. */
void p2p_fill(const struct p2p *p, size_t bytes);
bool p2p_received(const struct p2p *p, size_t bytes, bool receives);

/* Byte i of what a rank sends in a message of a size. */
unsigned char p2p_pattern(int rank, size_t bytes, size_t i);

/* Returns, on all ranks, whether none of them says that something is wrong. */
bool p2p_right(const struct p2p *p, size_t bytes, bool wrong);

/* Prints a line (rank 0). */
void p2p_row(struct p2p *p, size_t bytes, long iterations, const struct summary *s);
void p2p_end(struct p2p *p);

/* A whole program: options, ranks, measure() for each size until it is false, the end. */
int p2p_main(struct p2p *p, int argc, char **argv, bool (*measure)(struct p2p *, size_t));

/* Room for n samples; without memory the program ends. */
double *p2p_samples(long n);

/* Sends n windows of messages of a size. q and st have room for a window's requests. seconds: of each window; NULL: not asked for. */
typedef void p2p_windows(const struct p2p *p, int bytes, long n, MPI_Request *q, MPI_Status *st, double *seconds);

/*
 * Times windows of messages of a size, with that many requests in each, behind their warm-up. Returns the seconds of a window; sets
 * how many there were, and the seconds of all. Programs that time single messages, or calls with their samples in a run of its
 * own, measure by themselves: when the clock is read is what they differ in.
 */
struct summary p2p_time_windows(const struct p2p *p, size_t bytes, size_t requests, p2p_windows *windows, long *n,
				double *total);

/*
 * The place of the first argument among words, which NULL ends. -1: the help was asked for
 * and is printed; -2: it is none of them, which is said.
 */
int p2p_words(const char *const *words, int argc, char **argv, const char *help);

#endif
