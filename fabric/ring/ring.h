/* Lines of a ring (docs/region.md), as its sender and its receiver see them. */
#ifndef IVS_RING_H
#define IVS_RING_H

#include "object/ep.h"
#include "object/message.h"
#include "ring/copy.h"
#include "tune.h"

/* The word that the line at head carries once it is written. */
static inline uint32_t ivs_lap_of(uint64_t head, uint32_t shift, uint32_t lap0)
{
	return 0x80000000U | ((uint32_t) (head >> shift) + lap0);
}

static inline struct nm_line *ivs_line_at(uint8_t *ring, uint64_t pos, uint32_t mask)
{
	return (struct nm_line *) (void *) (ring + (pos & mask) * NM_LAYOUT_LINE);
}

/*
 * Lines of a message, in pairs: a core that polls for the next message fetches the other
 * line of its pair as well, from under the sender's hands.
 */
static inline uint32_t ivs_lines_for(size_t len)
{
	return len <= NM_LINE_FIRST_BYTES
		       ? 2
		       : (2 + (uint32_t) ((len - NM_LINE_FIRST_BYTES + NM_LINE_MORE_BYTES - 1) / NM_LINE_MORE_BYTES)) &
				 ~1U;
}

/* Copies len bytes of a message's payload, from byte at of its first line on. */
static inline void ivs_ring_get(struct ivs_peer *p, size_t at, uint8_t *dst, size_t len)
{
	const uint8_t *first = ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask)->payload;
	size_t n = NM_LINE_FIRST_BYTES - at, i;
	uint64_t pos = p->rx_head + 1;

	if (len <= n) {
		ivs_copy_small(dst, first + at, len);
		return;
	}
	/* All at once, not one after the other. */
	for (i = n; i < len; i += NM_LINE_MORE_BYTES)
		__builtin_prefetch(ivs_line_at(p->rx_ring, pos++, p->rx_mask));
	ivs_copy_small(dst, first + at, n);
	for (pos = p->rx_head + 1; len -= n; pos++) {
		dst += n;
		n = len < NM_LINE_MORE_BYTES ? len : NM_LINE_MORE_BYTES;
		ivs_copy_small(dst, (uint8_t *) ivs_line_at(p->rx_ring, pos, p->rx_mask) + 8, n);
	}
}

/* Has a peer sent something whose ring is not polled in each call? */
static inline bool ivs_any_activity(const struct nm_slot *me)
{
	const uint64_t *w = (const uint64_t *) (const void *) me->activity;

	return __atomic_load_n(&w[0], __ATOMIC_RELAXED) | __atomic_load_n(&w[1], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[2], __ATOMIC_RELAXED) | __atomic_load_n(&w[3], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[4], __ATOMIC_RELAXED) | __atomic_load_n(&w[5], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[6], __ATOMIC_RELAXED) | __atomic_load_n(&w[7], __ATOMIC_RELAXED);
}

/* The same of an eighth of them, in turn. */
static inline bool ivs_some_activity(const struct nm_slot *me, uint32_t turn)
{
	const uint64_t *w = (const uint64_t *) (const void *) me->activity;

	return __atomic_load_n(&w[turn % 8], __ATOMIC_RELAXED);
}

/* Shows a sender how much of its ring was read, if that is more than lines beyond what it knows of. */
static inline void ivs_ring_show_from(struct ivs_peer *p, uint32_t lines)
{
	if (p->rx_head - p->rx_shown > lines) {
		p->rx_shown = p->rx_head;
		__atomic_store_n(&p->rx_ctl->tail, p->rx_head, __ATOMIC_RELEASE);
	}
}

/* Once for each half: what is sent meanwhile waits in the store buffer until that line has come. */
static inline void ivs_ring_show(struct ivs_peer *p)
{
	ivs_ring_show_from(p, p->rx_mask / 2);
}

/*
 * After a message with a bounce buffer: how many cycles the next poll waits. One who sends such messages to others meanwhile may
 * wait for this peer with each of its messages, as in a ring of ranks: that one does not wait longer than for short ones.
 */
static inline uint64_t ivs_quiet_long(struct ivs_peer *p)
{
	uint32_t before = p->run_bounced;

	p->came_long = false;
	p->run_bounced = p->ep->bounced;
	return p->run_bounced == before ? IVS_QUIET_LONG_CYCLES : IVS_QUIET_CYCLES;
}

/*
 * A receiver that polls each line while it is being written slows down a sender of many
 * messages in a row. So after some of them the next poll waits for more to come. One that reads a bounce buffer while the
 * next one is being written slows it down as well: its CPU fetches lines ahead, which the sender then has to take back.
 */
static inline void ivs_pace(struct ivs_peer *p, int n)
{
	if (p->tx_head != p->run_head) {
		p->run_head = p->tx_head;
		p->run = 0;
		p->came_long = false;
		return;
	}
	p->run += (uint32_t) n;
	if (p->run >= IVS_RUN_LENGTH) {
		p->run = IVS_RUN_LENGTH;
		p->quiet_until = ivs_cycles() + (unlikely(p->came_long) ? ivs_quiet_long(p) : IVS_QUIET_CYCLES);
	}
}

/* ring.c: notifies a receiver that does not poll this ring in each call, and may sleep. */
void ivs_ring_notify(struct ivs_peer *peer);
/*
 * A whole message that fits the ring: the shortest way there is. data: 8 bytes of
 * remote CQ data, or NULL. false: there is no room now.
 */
bool ivs_eager_send(struct ivs_peer *peer, uint8_t op, uint64_t tag, const uint64_t *data, const void *buf, size_t len);
/* A message whose payload may need a bounce buffer. Returns 0, or -FI_EAGAIN if there is no room now. */
int ivs_ring_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/*
 * A message without payload: its fixed part, len bytes, fits the first line (NM_LINE_FIRST_BYTES). false: there is
 * no room now.
 */
bool ivs_ring_send_head(struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t len);
/* Takes back what the receiver has read. Is there room for this many lines now? */
bool ivs_ring_reap(struct ivs_peer *peer, uint32_t lines);

/*
 * While there is no message: does what would have to be done soon, between a message and its answer. It fetches lines
 * from the peer's cache.
 */
static inline void ivs_ring_idle(struct ivs_peer *p)
{
	ivs_ring_show_from(p, p->rx_mask / 4);
	if (unlikely(p->tx_head - p->tx_tail > p->tx_mask / 2 + 1) && p->tx_ring)
		ivs_ring_reap(p, 0);
}

/* Is there room for a message of this many lines? */
static inline bool ivs_ring_room(struct ivs_peer *p, uint32_t lines)
{
	return likely(p->tx_head + lines - p->tx_tail <= p->tx_mask + 1) || ivs_ring_reap(p, lines);
}

/* A bounce buffer comes back when the last of these lines was read, which are not published yet. */
static inline void ivs_ring_hold(struct ivs_peer *p, uint32_t lines, uint32_t bounce)
{
	p->tx_bounce[(p->tx_head + lines - 1) & p->tx_mask] = (uint16_t) (bounce + 1);
	p->tx_held++;
	p->ep->bounced++;
}

/* Takes a bounce buffer of that many bytes, perhaps one that its receiver has just read; IVS_NO_BOUNCE: there is no room. */
uint32_t ivs_ring_bounce(struct ivs_ep *ep, size_t bytes);
/* The same of a place for a packed one (ivs_bounce_seek). */
uint32_t ivs_ring_seek(struct ivs_ep *ep, size_t bytes, bool row);
/* Is there a message that was not handled? */
static inline bool ivs_ring_pending(const struct ivs_peer *p)
{
	return p->rx_ring && __atomic_load_n(&ivs_line_at(p->rx_ring, p->rx_head, p->rx_mask)->lap, __ATOMIC_RELAXED) ==
				     ivs_lap_of(p->rx_head, p->rx_shift, p->rx_lap0);
}

void ivs_ring_prefetch(const struct ivs_peer *peer);
int ivs_ring_open(struct ivs_peer *peer);

/* A ring to us, as the rank in a slot shows it; checked to lie in that rank's area. */
struct ivs_ring_found {
	uint32_t slot, epoch; /* of the sender */
	uint32_t shift;	      /* it has 1 << shift lines */
	uint32_t lap0;	      /* the first lap's number */
	uint8_t *ctl;	      /* its struct nm_ring_ctl; the lines follow */
};

/* Finds the ring from the rank in slot to us. Returns false if it shows none. */
bool ivs_ring_find(const struct ivs_ep *ep, uint32_t slot, struct ivs_ring_found *found);
/* Receives from that ring, which is the peer's, from now on. */
void ivs_ring_attach(struct ivs_peer *peer, const struct ivs_ring_found *found);
void ivs_ring_close(struct ivs_peer *peer);
void ivs_ring_free_all(struct ivs_ep *ep);

#endif /* IVS_RING_H */
