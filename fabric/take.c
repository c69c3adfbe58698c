/*
 * The shortest way of a message to its receiver: one that lies in its ring when the
 * receiver looks, that the first receive posted is for, and that is not longer than a ring's,
 * goes straight to the buffer and to the caller's completion. Whatever is not as simple as
 * that is left to the long way (progress.c), which looks at all.
 */
#include "proto.h"
#include "ring.h"

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

bool ivs_take(struct ivs_cq *cq, struct fi_cq_tagged_entry *e, fi_addr_t *src)
{
	struct ivs_ep *ep = only(cq);
	uint64_t word, tag, data = 0, flags = FI_RECV | FI_TAGGED;
	struct ivs_peer *p;
	struct nm_line *l;
	struct ivs_rx *rx;
	size_t skip, len;

	/* Now and then the long way looks at the others, too. */
	if (unlikely(!ep || !((ep->ticks + 1) % IVS_TURN_TICKS)))
		return false;
	p = ep->hot[0];
	/* A row of messages is handled in one go. */
	if (p->quiet_until || p->run >= IVS_RUN_LENGTH)
		return false;
	l = ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask);
	word = __atomic_load_n((uint64_t *) (void *) l, __ATOMIC_ACQUIRE);
	if ((uint32_t) word != ivs_lap_of(p->rx_head, p->rx_shift, p->rx_lap0))
		return false;
	len = word >> 48;
	skip = (word >> 40 & 0xff) ? 8 : 0;
	if (unlikely((word >> 32 & 0xff) != IVS_OP_TAGGED ||
		     (word >> 40 & 0xff & ~(uint64_t) IVS_F_DATA) ||
		     len > IVS_INLINE_MAX || len < skip))
		return false;
	len -= skip;
	tag = *(volatile uint64_t *) &l->tag;
	rx = ep->tagged.head;
	if (unlikely(!rx || (rx->peer && rx->peer != p) || (rx->tag ^ tag) & ~rx->ignore ||
		     rx->count != 1 || rx->len < len || !(rx->flags & FI_COMPLETION)))
		return false;
	ep->tagged.head = rx->next;
	if (!rx->next)
		ep->tagged.tail = &ep->tagged.head;
	if (skip) {
		memcpy(&data, l->payload, 8);
		flags |= FI_REMOTE_CQ_DATA;
	}
	if (likely(skip + len <= NM_LINE_FIRST_BYTES))
		ivs_copy_small(rx->iov[0].iov_base, l->payload + skip, len);
	else
		ivs_ring_get(p, skip, rx->iov[0].iov_base, len);
	e->op_context = rx->context;
	if (cq->format != FI_CQ_FORMAT_CONTEXT) {
		e->flags = flags;
		e->len = len;
	}
	if (cq->format >= FI_CQ_FORMAT_DATA) {
		e->buf = rx->iov[0].iov_base;
		e->data = data;
	}
	if (cq->format == FI_CQ_FORMAT_TAGGED)
		e->tag = tag;
	if (src)
		*src = p->fi_addr;
	ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], len);
	rx->next = ep->rx_free;
	ep->rx_free = rx;
	p->rx_head += ivs_lines_for(skip + len);
	ivs_ring_show(p);
	p->used = ++ep->ticks;
	ivs_pace(p, 1);
	return true;
}
