/*
 * Eager receive, the shortest path of a message to its receiver. A message is copied directly from its ring to the
 * buffer and to the caller's completion if it is in the ring when the receiver polls, matches the first posted receive,
 * and fits the ring itself. The messages after it follow if the same holds for them. All others are handled by
 * proto/progress.c, which polls all rings.
 */
#include "object/ep.h"
#include "proto/eager_receive.h"
#include "ring/ring.h"
#include "ring/spin.h"
#include "tune.h"

/*
 * Parts of a line's word (docs/region.md): op and flags; those of a short tagged message; the flag for remote CQ data.
 */
#define WORD_KIND   0xffff00000000ULL
#define WORD_TAGGED ((uint64_t) IVS_OP_TAGGED << 32)
#define WORD_DATA   ((uint64_t) IVS_F_DATA << 40)

/* Returns the only endpoint of a queue's domain, if it polls only one ring and has nothing to send, else NULL. */
static inline struct ivs_ep *only(struct ivs_cq *cq)
{
	struct ivs_list *eps = &cq->domain->eps;
	struct ivs_ep *ep;

	if (unlikely(eps->next == eps || eps->next != eps->prev))
		return NULL;
	ep = ivs_entry(eps->next, struct ivs_ep, domain_link);
	return likely(ep->rx_cq == cq && ep->hot_count == 1 && ivs_list_empty(&ep->active)) ? ep : NULL;
}

/*
 * Receives the first message of the peer's ring to buf, in cq's format. Returns 1, 0 without a message, or -1 if the
 * message needs the general path.
 */
static inline int receive_one(struct ivs_ep *ep, struct ivs_peer *p, struct ivs_cq *cq, char *buf)
{
	struct nm_line *l = ivs_line_at(p->ring.rx_ring, p->ring.rx_head, p->ring.rx_mask);
	uint64_t word = __atomic_load_n((uint64_t *) (void *) l, __ATOMIC_ACQUIRE);
	uint64_t tag, data = 0;
	struct ivs_rx *rx;
	size_t skip, len;

	if ((uint32_t) word != ivs_lap_of(p->ring.rx_head, p->ring.rx_shift, p->ring.rx_lap0))
		return 0;
	len = word >> 48;
	skip = word & WORD_DATA ? 8 : 0;
	if (unlikely((word & WORD_KIND & ~WORD_DATA) != WORD_TAGGED || len > IVS_INLINE_MAX || len < skip))
		return -1;
	len -= skip;
	tag = *(volatile uint64_t *) &l->tag;
	rx = ep->tagged.head;
	if (unlikely(!rx || (rx->peer && rx->peer != p) || (rx->tag ^ tag) & ~rx->ignore || rx->count != 1 ||
		     rx->len < len || !(rx->flags & FI_COMPLETION)))
		return -1;
	ep->tagged.head = rx->next;
	if (!rx->next)
		ep->tagged.tail = &ep->tagged.head;
	if (skip)
		memcpy(&data, l->payload, 8);
	if (likely(skip + len <= NM_LINE_FIRST_BYTES))
		ivs_copy_small(rx->iov[0].iov_base, l->payload + skip, len);
	else
		ivs_ring_get(&p->ring, skip, rx->iov[0].iov_base, len);
	ivs_cq_fill(cq, buf, rx->context, FI_RECV | FI_TAGGED | (skip ? FI_REMOTE_CQ_DATA : 0), len,
		    rx->iov[0].iov_base, data, tag);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], len);
	rx->next = ep->rx_free;
	ep->rx_free = rx;
	ivs_ring_take(&p->ring, ivs_lines_for(skip + len), false);
	return 1;
}

ssize_t ivs_eager_receive(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src)
{
	struct ivs_ep *ep = only(cq);
	struct ivs_peer *p;
	size_t n = 0;
	int one = 0;

	/* Now and then the general path must poll the other rings. */
	if (unlikely(!ep || !((ep->ticks + 1) % IVS_TURN_TICKS)))
		return 0;
	p = ep->hot[0];
	if (ivs_ring_quiet(&p->ring))
		return 0;
	/* The caller waits for one reply to the last message sent: no poll for more. */
	if (p->ring.tx_head != p->ring.run_head)
		count = 1;
	else if (count > IVS_EAGER_RECEIVE_MAX)
		count = IVS_EAGER_RECEIVE_MAX;
again:
	for (; n < count; n++) {
		/* After a series of messages more are likely. */
		if (n >= IVS_RUN_LENGTH - 1)
			__builtin_prefetch(
				ivs_line_at(p->ring.rx_ring, p->ring.rx_head + IVS_AHEAD_LINES, p->ring.rx_mask));
		one = receive_one(ep, p, cq, buf);
		if (one <= 0)
			break;
		if (src)
			src[n] = p->fi_addr;
		buf += cq->entry_bytes;
		ivs_ring_show(&p->ring);
	}
	if (n) {
		ivs_ring_use(&p->ring, ++ep->ticks);
		ivs_pace(&p->ring, (int) n);
		return (ssize_t) n;
	}
	if (unlikely(one < 0 || ivs_any_activity(ep->me) || ep->domain->core))
		return 0;
	/* A caller that waits in a loop mostly ends here: return soon, so that it polls again. */
	ep->ticks++;
	ivs_ring_idle(&p->ring);
	/* Other threads may wait for the domain. */
	if (!cq->domain->locking && ivs_spin(&p->ring))
		goto again;
	return -FI_EAGAIN;
}
