/* Completion queues. */
#ifndef IVS_CQ_H
#define IVS_CQ_H

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include "object/domain.h"
#include "object/wait.h"
#include "tune.h"

struct ivs_comp {
	void *context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data;
	uint64_t tag;
	fi_addr_t src;
	struct ivs_cq_err *err; /* not NULL: an error */
};

struct ivs_cq_err {
	size_t olen;
	int err;
	int prov_errno;
};

struct ivs_cq {
	struct fid_cq fid;
	struct ivs_domain *domain;
	int refs;
	enum fi_cq_format format;
	size_t entry_bytes;
	enum fi_wait_obj wait_obj;
	struct ivs_comp *ring; /* mask + 1 entries */
	size_t mask;
	size_t head;	   /* next to read */
	size_t tail;	   /* next to write */
	size_t size;	   /* unread completions at which receiving stops */
	uint32_t idle;	   /* consecutive reads that found nothing */
	uint32_t patience; /* empty reads before a yield: IVS_YIELD_CROWDED and its doubles, IVS_YIELD_AFTER at most */
	bool signaled;
	struct ivs_wait wait;
};

/* A completion needs only one line of the queue. */
IVS_IN_LINE(struct ivs_cq, ring, 1);
IVS_IN_LINE(struct ivs_cq, mask, 1);
IVS_IN_LINE(struct ivs_cq, head, 1);
IVS_IN_LINE(struct ivs_cq, tail, 1);
IVS_IN_LINE(struct ivs_cq, size, 1);
IVS_IN_LINE(struct ivs_cq, idle, 1);
IVS_IN_LINE(struct ivs_cq, patience, 1);
_Static_assert(sizeof(struct ivs_comp) == 64, "a completion is one cache line");

/* Functions in cq.c. */
void ivs_cq_grow(struct ivs_cq *cq);
void ivs_cq_wake(struct ivs_cq *cq);
void ivs_cq_error(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data, uint64_t tag,
		  size_t olen, int err);

/* Yields the CPU now and then. idle: consecutive reads that found nothing, at least ivs_cq_patience(). */
void ivs_cq_yield(struct ivs_cq *cq, uint32_t idle);

/* Writes an entry of the queue's format to buf. */
static inline void ivs_cq_fill(const struct ivs_cq *cq, void *buf, void *context, uint64_t flags, size_t len, void *at,
			       uint64_t data, uint64_t tag)
{
	struct fi_cq_tagged_entry *e = buf;

	e->op_context = context;
	if (unlikely(cq->format == FI_CQ_FORMAT_CONTEXT))
		return;
	e->flags = flags;
	e->len = len;
	if (likely(cq->format == FI_CQ_FORMAT_TAGGED))
		e->tag = tag;
	else if (cq->format == FI_CQ_FORMAT_MSG)
		return;
	e->buf = at;
	e->data = data;
}

/*
 * Reads up to count completions from the queue into buf. Returns their number, -FI_EAGAIN if there are none, or
 * -FI_EAVAIL if the next one is an error.
 */
static inline ssize_t ivs_cq_drain(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src)
{
	size_t n;

	if (cq->head == cq->tail)
		return -FI_EAGAIN;
	for (n = 0; n < count && cq->head != cq->tail; n++) {
		struct ivs_comp *c = &cq->ring[cq->head & cq->mask];

		if (unlikely(c->err != NULL))
			return n ? (ssize_t) n : -FI_EAVAIL;
		ivs_cq_fill(cq, buf, c->context, c->flags, c->len, c->buf, c->data, c->tag);
		buf += cq->entry_bytes;
		if (src)
			src[n] = c->src;
		cq->head++;
	}
	/* Restart an empty queue at the front: going around always would cost a cache miss for each completion. */
	if (cq->head == cq->tail)
		cq->head = cq->tail = (cq->tail + cq->mask) & ~(uint64_t) cq->mask;
	return (ssize_t) n;
}

/*
 * Counts consecutive reads that found nothing. ret: the result of the last one. Called with the domain locked. Returns
 * the count.
 */
static inline uint32_t ivs_cq_idle(struct ivs_cq *cq, ssize_t ret)
{
	cq->idle = ret == -FI_EAGAIN ? cq->idle + 1 : 0;
	return cq->idle;
}

/* Returns the number of empty reads before a yield. */
static inline uint32_t ivs_cq_patience(const struct ivs_cq *cq)
{
	return __atomic_load_n(&cq->patience, __ATOMIC_RELAXED);
}

static inline size_t ivs_cq_count(const struct ivs_cq *cq)
{
	return cq->tail - cq->head;
}

static inline void ivs_cq_add(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
			      uint64_t tag, fi_addr_t src)
{
	struct ivs_comp *c;

	if (unlikely(cq->tail - cq->head > cq->mask))
		ivs_cq_grow(cq);
	c = &cq->ring[cq->tail & cq->mask];
	c->context = context;
	c->flags = flags;
	c->len = len;
	c->buf = buf;
	c->data = data;
	c->tag = tag;
	c->src = src;
	c->err = NULL;
	cq->tail++;
	if (unlikely(cq->wait.armed))
		ivs_cq_wake(cq);
}

#endif /* IVS_CQ_H */
