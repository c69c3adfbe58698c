/* Two processes, and what they share: fabric_bench's parts. */
#ifndef PAIR_H
#define PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meter.h"

#define PAIR_MAX   1100 /* addresses */
#define PAIR_LINES 33
#define BESIDE_MAX 9 /* pairs of endpoints, one after another */

struct common {
	_Alignas(64) uint32_t arrived[2];
	_Alignas(128) uint64_t ball[PAIR_LINES][2][16]; /* each alone in a pair of lines */
	_Alignas(64) uint64_t chunks[2][8];		/* written, read */
	_Alignas(64) uint64_t word, key, offset;
	_Alignas(64) uint8_t addr[PAIR_MAX][128];
	_Alignas(4096) uint8_t bounce[1 << 20];
};

extern struct common *common;
extern int rank; /* 0 or 1 */

void die(const char *what, long err);
void check(const char *what, long err);
/* This one has come here; have both? */
void arrive(void);
bool both_arrived(void);
/* Both have come here. Nobody polls a provider meanwhile. */
void meet(void);

/* limits.c: what the machine can do at most; of it the ping-pong alone, in a few ms. */
void limits(void);
void limits_pingpong(void);
/* over.c: messages and puts over a provider. few: a third of the figures. */
void over(const char *provider, bool few);
void over_puts(const char *provider);
/*
 * Messages over a provider and over another in turns, by the same two processes, and that with so
 * many pairs of endpoints (1 to BESIDE_MAX), one after another: connections differ. The other's figures begin
 * with "other-".
 */
void over_beside(const char *provider, const char *other, int pairs);
/* work.c: the work of a message over a provider, both ends in one thread. */
void work(const char *provider);
/* The same with a number of messages of len bytes, in a function that callgrind counts the instructions of. */
void count(const char *provider, size_t len);
/* senders.c: the time of a message of 8 bytes to a receiver with 1 to 32 senders, by their number, all in one thread. */
void senders(const char *provider);
/* many.c: latency with and without a crowd of idle peers; start of count processes, in ms. */
void idle(const char *provider);
int start(const char *provider, int count);

#endif /* PAIR_H */
