/*
 * The shortest way of a message to its receiver: written at once into the ring, if it fits one
 * line there. take.c is the other end of it. Whatever is not as simple is left to send.c.
 */
#ifndef IVS_PUT_H
#define IVS_PUT_H

#include "proto.h"
#include "ring.h"

#define IVS_ROW_LINES	8	/* sent without an answer: there will be more */
#define IVS_OWN_LINES	8	/* how far ahead they are made ours */

/*
 * In a row of messages, the lines of the next but few are made ours beforehand: the store
 * buffer would be full of messages that wait for theirs. In a ping-pong that only disturbs
 * the receiver, which looks at the next message's first lines; of a longer one the others
 * are made ours while its answer is awaited.
 */
static inline void ivs_own_ahead(struct ivs_peer *p, uint32_t lines)
{
	uint32_t i;

	if (p->rx_head != p->row_rx) {
		p->row_rx = p->rx_head;
		p->row_tx = p->tx_head;
		if (lines > IVS_FETCHED_LINES)
			for (i = 2; i < lines; i++)
				ivs_prefetch_own(ivs_line_at(p->tx_ring, p->tx_head + i, p->tx_mask));
	} else if (p->tx_head - p->row_tx >= IVS_ROW_LINES) {
		for (i = 0; i < lines; i++)
			ivs_prefetch_own(ivs_line_at(p->tx_ring, p->tx_head + IVS_OWN_LINES + i, p->tx_mask));
	}
}

/* The message of so many lines at l is complete: shows it to its receiver. */
static inline void ivs_ring_publish(struct ivs_peer *p, struct nm_line *l, uint32_t lines,
				    uint8_t op, uint8_t flags, size_t len)
{
	uint64_t word = (uint64_t) ivs_lap_of(p->tx_head, p->tx_shift, p->tx_lap0) |
			(uint64_t) op << 32 | (uint64_t) flags << 40 |
			(uint64_t) len << 48;

	__atomic_store_n((uint64_t *) (void *) l, word, __ATOMIC_RELEASE);
	p->tx_head += lines;
	ivs_own_ahead(p, lines);
	/*
	 * A receiver that does not look at this ring by itself sees its activity
	 * byte. No fence: what is missed between the two is found in turn.
	 */
	if (unlikely(!__atomic_load_n(&p->tx_ctl->polled, __ATOMIC_RELAXED)))
		ivs_ring_tell(p);
}

/*
 * A tagged message to dest; data: 8 bytes of remote CQ data, or NULL. false: it needs the long
 * way, and nothing was done.
 */
static inline bool ivs_put_tagged(struct ivs_ep *ep, fi_addr_t dest, uint64_t tag,
				  const uint64_t *data, const void *buf, size_t len)
{
	size_t at = data ? 8 : 0;
	struct ivs_peer *p;
	struct nm_line *l;

	if (unlikely(dest >= ep->peers_size || len > ep->short_max))
		return false;
	p = ep->peers[dest];
	if (unlikely(!p || p->channel != IVS_CHAN_RING ||
		     p->tx_head + 2 - p->tx_tail > p->tx_mask + 1))
		return false;
	l = ivs_line_at(p->tx_ring, p->tx_head, p->tx_mask);
	l->tag = tag;
	if (data)
		memcpy(l->payload, data, 8);
	ivs_copy_small(l->payload + at, buf, len);
	ivs_ring_publish(p, l, 2, IVS_OP_TAGGED, data ? IVS_F_DATA : 0, len + at);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
	return true;
}

#endif /* IVS_PUT_H */
