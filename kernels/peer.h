/*
 * Two processes, called a and b, that meet in a region's scratch area.
 *
 * Nothing in the area is trusted: the wait for a word is bounded by the time limit, and its value is compared or
 * bounded before it is used. Data that an earlier or killed run left there does not matter: each side generates a
 * number and continues only when the other has repeated it.
 */
#ifndef NM_PEER_H
#define NM_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "region_map.h"

#define CACHE_LINE	64
#define PEER_PARAMETERS 8

/* One side's words; only that side writes them. */
struct peer_words {
	_Alignas(CACHE_LINE) _Atomic uint64_t nonce;  /* not 0 once the side has started */
	_Atomic uint64_t echo;			      /* the other's nonce */
	_Atomic uint64_t parameters[PEER_PARAMETERS]; /* of side a, for b to follow */
	_Atomic uint64_t base;			      /* phase at the start */
	/*
	 * Number of steps that the side has completed. It continues from the value that an earlier run left: if it
	 * decreased, a side that still waits in that run's last step would wait forever.
	 */
	_Alignas(CACHE_LINE) _Atomic uint64_t phase;
};

struct peer {
	char role;	/* 'a' or 'b' */
	double timeout; /* seconds until the other side starts, and for each of its steps */
	pid_t child;	/* of --fork, 0: none */
	struct peer_words *mine, *theirs;
	unsigned char *area; /* for the test itself, page-aligned */
	size_t area_bytes;
	uint64_t phase; /* number of steps of this run */
};

/* The options that the programs over a region have in common. */
struct peer_options {
	const char *region; /* path */
	char role;	    /* 'a', 'b', or 0 for --fork */
	bool fork;
	int cpus[2]; /* of a and b, -1: anywhere */
	double timeout;
	bool json;
};

#define PEER_SHORT_OPTIONS "h"
#define PEER_OPTIONS \
	{ "region", required_argument, NULL, PEER_REGION }, { "role", required_argument, NULL, PEER_ROLE }, \
		{ "fork", no_argument, NULL, PEER_FORK }, { "cpus", required_argument, NULL, PEER_CPUS }, \
		{ "timeout", required_argument, NULL, PEER_TIMEOUT }, { "json", no_argument, NULL, PEER_JSON }, \
		{ "help", no_argument, NULL, 'h' }

enum { PEER_REGION = 256, PEER_ROLE, PEER_FORK, PEER_CPUS, PEER_TIMEOUT, PEER_JSON, PEER_LAST };

#define PEER_HELP \
	"      --region PATH         the region (default " NM_REGION_DEVICE "; with --fork a new\n" \
	"                            one in /dev/shm): a PCI resource, a devdax device or a file\n" \
	"      --role a|b            which side this is; a measures and prints, b follows it\n" \
	"      --fork                be both sides, in two processes of this host\n" \
	"      --cpus A[,B]          run on these CPUs: with --fork both, else this side on A\n" \
	"      --timeout SECONDS     how long to wait for the other side, at the start and at\n" \
	"                            each step (default 60)\n" \
	"      --json                one JSON document instead of the table\n" \
	"  -h, --help                this text\n"

/* Parses one of PEER_OPTIONS; false after an error message. */
bool peer_option(struct peer_options *o, int option, const char *value);

/* Checks that the options are consistent; false after an error message. */
bool peer_options_check(const struct peer_options *o);

/*
 * Opens the region, checks that it is cached (t has its read times), forks if requested, pins, lets prepare() reset
 * the words that this side writes in the area, and meets the other side. From then on peer_parameter() returns side
 * a's parameters. Returns false after an error message; nothing is then open.
 */
bool peer_start(struct peer *p, struct region *r, struct read_times *t, const struct peer_options *o,
		const uint64_t parameters[PEER_PARAMETERS], void (*prepare)(struct peer *));

/* Ends: side a waits for a child of --fork. Returns the status to exit with. */
int peer_end(struct peer *p, struct region *r, int status);

/* Returns a parameter of side a, unchecked. */
uint64_t peer_parameter(const struct peer *p, int i);

/* Waits until both sides have reached this step, "phase"; false after an error message on a time-out. */
bool peer_barrier(struct peer *p);

/* Prints that the other side did not answer. Always returns false. */
bool peer_lost(const struct peer *p);

/* A bounded wait: call peer_waiting() in the loop; when it returns false, stop. */
struct peer_wait {
	uint64_t spins;
	double end;
	bool gone; /* the child was seen to have ended */
};

bool peer_waiting_slow(const struct peer *p, struct peer_wait *w);

static inline bool peer_waiting(const struct peer *p, struct peer_wait *w)
{
	/* Checked only occasionally, because reading the clock costs more than the wait. */
	return ++w->spins % 4096 || peer_waiting_slow(p, w);
}

/*
 * Waits until *word is value or later, in the sense of sequence numbers that wrap; the other side may write anything
 * to it.
 */
static inline bool peer_await(const struct peer *p, const _Atomic uint64_t *word, uint64_t value)
{
	struct peer_wait w = { 0 };

	while ((int64_t) (atomic_load_explicit(word, memory_order_acquire) - value) < 0)
		if (!peer_waiting(p, &w))
			return peer_lost(p);
	return true;
}

#endif
