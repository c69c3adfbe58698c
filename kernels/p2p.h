/* What nm_latency and nm_bw share: options, output, and the two ranks. */
#ifndef NM_P2P_H
#define NM_P2P_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "summary.h"

/* Up to this size the number of iterations is the first of the two, as in OSU's programs. */
#define P2P_SMALL_BYTES	8192
#define P2P_MAX_BYTES	(1ULL << 30)

struct p2p {
	const char *program, *what, *unit, *help;
	bool window_used;
	uint64_t min_bytes, max_bytes;
	long iterations, iterations_large;
	long warmup, warmup_large;
	long window;
	double time_limit;	/* seconds for a size; 0: none */
	bool json;
	/* from here on set by p2p_start() */
	int rank, peer;
	long rows;
	unsigned char *send, *receive;	/* max_bytes each, page-aligned */
};

/* Reads the options. Gives -1 to go on, else the status to exit with. */
int p2p_options(struct p2p *p, int argc, char **argv);

/* After MPI_Init: checks that there are two ranks, prints the header. As p2p_options(). */
int p2p_start(struct p2p *p);

/* Iterations for a size of which warmup took seconds on rank 0; the same on both ranks. */
long p2p_iterations(const struct p2p *p, size_t bytes, long warmup, double seconds, int loops);
long p2p_warmup(const struct p2p *p, size_t bytes);

/* Fills the buffers for a size; afterwards tells, on both ranks, whether both got the other's. */
void p2p_fill(const struct p2p *p, size_t bytes);
bool p2p_received(const struct p2p *p, size_t bytes, bool receives);

/* Prints a line (rank 0). */
void p2p_row(struct p2p *p, size_t bytes, long iterations, const struct summary *s);
void p2p_end(struct p2p *p);

#endif
