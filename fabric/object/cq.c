/* The contents of completion queues. */
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/lib.h"
#include "base/param.h"
#include "object/cq.h"
#include "tune.h"

/* Doubles the room. Without memory the oldest completion is lost, with a warning. */
void ivs_cq_grow(struct ivs_cq *cq)
{
	size_t size = 2 * (cq->mask + 1), i;
	struct ivs_comp *ring = malloc(size * sizeof(*ring));

	if (!ring) {
		IVS_WARN(FI_LOG_CQ, "no memory for %zu completions: the oldest is lost\n", size);
		cq->head++;
		return;
	}
	for (i = cq->head; i != cq->tail; i++)
		ring[i & (size - 1)] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = size - 1;
}

void ivs_cq_wake(struct ivs_cq *cq)
{
	cq->wait.armed = false;
	ivs_wait_signal(&cq->wait);
}

void ivs_cq_error(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data, uint64_t tag,
		  size_t olen, int err)
{
	struct ivs_cq_err *e;

	if (!cq)
		return;
	e = malloc(sizeof(*e));
	ivs_cq_add(cq, context, flags, len, buf, data, tag, FI_ADDR_NOTAVAIL);
	if (!e)
		return;
	e->olen = olen;
	e->err = err;
	e->prov_errno = err;
	cq->ring[(cq->tail - 1) & cq->mask].err = e;
}

/* Returns how often this thread's CPU was given to another thread that wanted it. */
static long switches(void)
{
	struct rusage use = { .ru_nivcsw = 0 };

	getrusage(RUSAGE_THREAD, &use);
	return use.ru_nivcsw;
}

/*
 * Yields the CPU of a program that polls in a loop. With more programs than CPUs, the sender may be waiting for this
 * CPU. After IVS_YIELD_AFTER empty reads, some 50 us, each program therefore yields now and then, which costs nothing
 * where each has a CPU. While another thread does use the yielded CPU, that is too long: Open MPI's blocking send reads
 * without a yield of its own, and the rank that should answer it waits for the CPU.
 *
 * sched_yield() does not reach the host's scheduler. Where VMs wait for each other's CPUs, only a sleep, in which the
 * vCPU halts, lets another VM run.
 */
void ivs_cq_yield(struct ivs_cq *cq, uint32_t idle)
{
	static const struct timespec nap = { .tv_nsec = IVS_WAIT_SHORT_FIRST };
	uint32_t patience = ivs_cq_patience(cq);
	long before;

	if (ivs_param.overcommit) {
		if (!(idle % IVS_YIELD_CROWDED))
			nanosleep(&nap, NULL);
		return;
	}
	if (patience == IVS_YIELD_AFTER && idle % IVS_YIELD_EACH)
		return;
	before = switches();
	sched_yield();
	if (switches() != before)
		patience = IVS_YIELD_CROWDED;
	else if (patience < IVS_YIELD_AFTER)
		patience *= 2;
	__atomic_store_n(&cq->patience, patience, __ATOMIC_RELAXED);
}
