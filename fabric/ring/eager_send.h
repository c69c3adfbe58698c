/*
 * The shortest path of a message to its receiver: it is written at once into the ring, if it fits there.
 * proto/eager_receive.c is the receiving end. Every other message is left to send.c.
 */
#ifndef IVS_EAGER_SEND_H
#define IVS_EAGER_SEND_H

#include "ring/ring.h"
#include "tune.h"

/*
 * Fetches lines of later messages for writing. In a stream, these are the lines some messages ahead: otherwise the
 * store buffer would be full of messages that wait for their lines. In a ping-pong that would only disturb the
 * receiver, which polls the next message's first line; there, after a message of several lines, the next one's other
 * lines are fetched while the reply is on its way.
 */
static inline void ivs_own_ahead(struct ivs_ring *r, uint32_t lines, size_t len)
{
	uint32_t i;

	if (r->rx_head != r->row_rx) {
		r->row_rx = r->rx_head;
		r->row_tx = r->tx_head;
		if (len > NM_LINE_FIRST_BYTES)
			for (i = 1; i < lines; i++)
				ivs_prefetch_own(ivs_line_at(r->tx_ring, r->tx_head + i, r->tx_mask));
	} else if (r->tx_head - r->row_tx >= IVS_OWN_LINES) {
		for (i = 0; i < lines; i++)
			ivs_prefetch_own(ivs_line_at(r->tx_ring, r->tx_head + IVS_OWN_LINES + i, r->tx_mask));
	}
}

/* Returns true if the peer has sent nothing since the last message to it. */
static inline bool ivs_in_row(const struct ivs_ring *r)
{
	return r->rx_head == r->row_rx;
}

/* Shows a complete message, of this many lines from l on, to its receiver. */
static inline void ivs_ring_publish(struct ivs_ring *r, struct nm_line *l, uint32_t lines, uint8_t op, uint8_t flags,
				    size_t len)
{
	uint64_t word = (uint64_t) ivs_lap_of(r->tx_head, r->tx_shift, r->tx_lap0) | (uint64_t) op << 32 |
			(uint64_t) flags << 40 | (uint64_t) len << 48;

	__atomic_store_n((uint64_t *) (void *) l, word, __ATOMIC_RELEASE);
	r->tx_head += lines;
	ivs_own_ahead(r, lines, len);
	/*
	 * A receiver that does not poll this ring in each call sees its activity byte. No fence: a message missed
	 * between the two is found when the receiver next polls all rings.
	 */
	if (unlikely(!__atomic_load_n(&r->tx_ctl->polled, __ATOMIC_RELAXED)))
		ivs_ring_notify(r);
}

/* Writes the part of a message's payload that does not fit its first line: len bytes, not 0. */
static inline void ivs_eager_send_more(struct ivs_ring *r, const uint8_t *src, size_t len)
{
	uint64_t pos = r->tx_head + 1;
	uint64_t *l = (uint64_t *) (void *) ivs_line_at(r->tx_ring, pos, r->tx_mask);

	for (; len > NM_LINE_MORE_BYTES; len -= NM_LINE_MORE_BYTES, src += NM_LINE_MORE_BYTES) {
		__atomic_store_n(l, 0, __ATOMIC_RELAXED);
		ivs_copy_small(l + 1, src, NM_LINE_MORE_BYTES);
		l = (uint64_t *) (void *) ivs_line_at(r->tx_ring, ++pos, r->tx_mask);
	}
	__atomic_store_n(l, 0, __ATOMIC_RELAXED);
	ivs_copy_small(l + 1, src, len);
}

/*
 * Writes a message into this many free lines and publishes it. The first line is written last: its receiver polls it
 * all the time, and would fetch it back in between.
 */
static inline void ivs_eager_send_lines(struct ivs_ring *r, uint32_t lines, uint8_t op, uint64_t tag,
					const uint64_t *data, const void *buf, size_t len)
{
	size_t at = data ? 8 : 0, first = NM_LINE_FIRST_BYTES - at;
	struct nm_line *l = ivs_line_at(r->tx_ring, r->tx_head, r->tx_mask);

	if (len > first)
		ivs_eager_send_more(r, (const uint8_t *) buf + first, len - first);
	l->tag = tag;
	if (data)
		memcpy(l->payload, data, 8);
	ivs_copy_small(l->payload + at, buf, len < first ? len : first);
	ivs_ring_publish(r, l, lines, op, data ? IVS_F_DATA : 0, len + at);
}

#endif /* IVS_EAGER_SEND_H */
