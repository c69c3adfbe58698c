/*
 * What the programs of this bench have in common: a core and real-time priority for
 * each process, and measurements that last as long as they need to. A measurement is
 * cut into SLICES, and the median of them is printed: what disturbs one of them, an
 * interrupt or another process, does not show.
 */
#ifndef METER_H
#define METER_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define METER_LARGEST (8UL << 20) /* bytes of the largest message */
#define METER_SLICES  5
#define METER_WINDOW  64 /* messages sent in a row */

extern const size_t meter_latency_sizes[], meter_bandwidth_sizes[];
extern const int meter_latency_count, meter_bandwidth_count;

/* Pins the calling thread to the index'th of the cores that it may use. */
void meter_pin(int index);

/*
 * Real-time priority for the calling thread, where that is allowed and NO_REALTIME is
 * not set, within a limit for all its process: a spinning one would starve the machine.
 */
void meter_realtime(void);
void meter_normal(void);

/*
 * Both ranks of a benchmark, and the bytes of memory that they share, which begin as zeros. By default this process is
 * rank 0 and forks rank 1. *child is that one's number in rank 0, else 0. Where METER_RANK is 0 or 1, this process is
 * that rank alone. The other one is started by somebody else, and the memory is the file METER_SHARED. Both return
 * NULL or -1 where it fails, with errno.
 */
void *meter_shared(size_t bytes);
int meter_ranks(pid_t *child);

/* After a poll that found nothing: where METER_YIELD is set, both ranks share one core, which the other one gets. */
extern bool meter_yields;
static inline void meter_idle(void)
{
	if (meter_yields)
		sched_yield();
}

/* Time in us. */
double meter_now(void);

/* How many of what took us for count make a slice of want_us; least at least. */
long meter_count(double us, long count, double want_us, long least);

/* The middle of n values, which it sorts. */
double meter_median(double *values, int n);

/* Messages sent in a row, so that a window is at most 64 MiB. */
int meter_window(size_t len);

/* Prints a figure: what, bytes, value. */
void meter_print(const char *what, size_t len, double value);

#endif /* METER_H */
