/*
 * The shortest way of messages to their receiver: one that lies in its ring when the
 * receiver looks, that the first receive posted is for, and that is not longer than a ring's,
 * goes straight to the buffer and to the caller's completion, and so do those after it.
 * Whatever is not as simple as that is left to the long way (progress.c), which looks at all.
 */
#include "await.h"
#include "proto.h"
#include "ring.h"

#define TAKE_MAX	64	/* messages in one call, before others are looked at */
#define AHEAD_LINES	16	/* of a row of messages, fetched before their turn comes */

/* Of a line's word (docs/region.md): op and flags; a short tagged message's; that it has data. */
#define WORD_KIND	0xffff00000000ULL
#define WORD_TAGGED	((uint64_t) IVS_OP_TAGGED << 32)
#define WORD_DATA	((uint64_t) IVS_F_DATA << 40)

/* The only endpoint of a queue's domain, if it looks at one ring only and has nothing to send. */
static inline struct ivs_ep *only(struct ivs_cq *cq)
{
	struct ivs_list *eps = &cq->domain->eps;
	struct ivs_ep *ep;

	if (unlikely(eps->next == eps || eps->next != eps->prev))
		return NULL;
	ep = ivs_entry(eps->next, struct ivs_ep, domain_link);
	return likely(ep->rx_cq == cq && ep->hot_count == 1 && ivs_list_empty(&ep->active)) ?
	       ep : NULL;
}

/*
 * The first message of p's ring to buf, as cq has it. Gives 1; 0 if there is none, and -1 if it is
 * of another kind.
 */
static inline int take_one(struct ivs_ep *ep, struct ivs_peer *p, struct ivs_cq *cq, char *buf)
{
	struct nm_line *l = ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask);
	uint64_t word = __atomic_load_n((uint64_t *) (void *) l, __ATOMIC_ACQUIRE);
	uint64_t tag, data = 0;
	struct ivs_rx *rx;
	size_t skip, len;

	if ((uint32_t) word != ivs_lap_of(p->rx_head, p->rx_shift, p->rx_lap0))
		return 0;
	len = word >> 48;
	skip = word & WORD_DATA ? 8 : 0;
	if (unlikely((word & WORD_KIND & ~WORD_DATA) != WORD_TAGGED || len > IVS_INLINE_MAX ||
		     len < skip))
		return -1;
	len -= skip;
	tag = *(volatile uint64_t *) &l->tag;
	rx = ep->tagged.head;
	if (unlikely(!rx || (rx->peer && rx->peer != p) || (rx->tag ^ tag) & ~rx->ignore ||
		     rx->count != 1 || rx->len < len || !(rx->flags & FI_COMPLETION)))
		return -1;
	ep->tagged.head = rx->next;
	if (!rx->next)
		ep->tagged.tail = &ep->tagged.head;
	if (skip)
		memcpy(&data, l->payload, 8);
	if (likely(skip + len <= NM_LINE_FIRST_BYTES))
		ivs_copy_small(rx->iov[0].iov_base, l->payload + skip, len);
	else
		ivs_ring_get(p, skip, rx->iov[0].iov_base, len);
	ivs_cq_fill(cq, buf, rx->context, FI_RECV | FI_TAGGED | (skip ? FI_REMOTE_CQ_DATA : 0), len,
		    rx->iov[0].iov_base, data, tag);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], len);
	rx->next = ep->rx_free;
	ep->rx_free = rx;
	p->rx_lines = ivs_lines_for(skip + len);
	p->rx_head += p->rx_lines;
	return 1;
}

ssize_t ivs_take(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src)
{
	struct ivs_ep *ep = only(cq);
	struct ivs_peer *p;
	size_t n = 0;
	int one = 0;

	/* Now and then the long way looks at the others, too. */
	if (unlikely(!ep || !((ep->ticks + 1) % IVS_TURN_TICKS)))
		return 0;
	p = ep->hot[0];
	if (p->quiet_until) {
		if ((int64_t) (ivs_cycles() - p->quiet_until) < 0)
			return 0;
		p->quiet_until = 0;
	}
	/* To what we have just sent there is one answer, for which somebody waits: no look for more. */
	if (p->tx_head != p->run_head)
		count = 1;
	else if (count > TAKE_MAX)
		count = TAKE_MAX;
again:
	for (; n < count; n++) {
		/* After some that were there others will be. */
		if (n >= IVS_RUN_LENGTH - 1)
			__builtin_prefetch(ivs_line_at(p->rx_ring, p->rx_head + AHEAD_LINES, p->rx_mask));
		one = take_one(ep, p, cq, buf);
		if (one <= 0)
			break;
		if (src)
			src[n] = p->fi_addr;
		buf += cq->entry_bytes;
		ivs_ring_show(p);
	}
	if (n) {
		p->used = ++ep->ticks;
		ivs_pace(p, (int) n);
		return (ssize_t) n;
	}
	if (unlikely(one < 0 || ivs_any_activity(ep->me) || ep->domain->inner))
		return 0;
	/* Whoever waits in a loop comes by here most of the time: the sooner it looks again. */
	ep->ticks++;
	ivs_ring_fetch(p);
	/* Other threads may wait for the domain. */
	if (!cq->domain->locking && ivs_await(p))
		goto again;
	return -FI_EAGAIN;
}
