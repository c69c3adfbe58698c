/*
 * The two rings between this rank and another one (docs/region.md). This part depends on neither endpoints nor peers.
 */
#ifndef IVS_RING_H
#define IVS_RING_H

#include "base/common.h"
#include "base/cycles.h"
#include "base/layout.h"
#include "base/message.h"
#include "ring/copy.h"
#include "ring/home.h"
#include "ring/nontemporal.h"
#include "tune.h"

struct ivs_ring {
	/* the ring to the other rank; fields that every message needs come first */
	uint32_t tx_mask; /* lines - 1 */
	uint32_t tx_shift;
	uint32_t tx_lap0;
	uint8_t *tx_ring; /* NULL: not open */
	struct nm_ring_ctl *tx_ctl;
	uint64_t tx_head;
	uint64_t tx_tail;    /* the last known tail of the receiver */
	uint16_t *tx_bounce; /* by line: bounce buffer + 1 that is freed with it, 0: none */
	uint32_t tx_held;    /* lines with a bounce buffer */
	uint8_t *activity;   /* this rank's activity byte at the receiver */

	/* the ring from the other rank */
	uint8_t *rx_ring; /* NULL: it has none */
	struct nm_ring_ctl *rx_ctl;
	uint64_t rx_head;
	uint64_t rx_shown; /* the tail that the sender has been shown */
	uint32_t rx_mask;
	uint32_t rx_shift;
	uint32_t rx_lap0;

	uint64_t row_rx, row_tx; /* rx_head, and tx_head at the last change of rx_head */
	struct ivs_home *home;
	uint64_t run_head;    /* tx_head when the run began */
	uint64_t spin_head;   /* tx_head when spinning for an answer began (spin.h) */
	uint64_t quiet_until; /* value of ivs_cycles() before which the ring is not polled */
	uint32_t run;	      /* messages received back-to-back since our last message */
	uint32_t run_bounced; /* home->bounced at the run's last message with a bounce buffer */
	uint32_t used;	      /* call of the poller in which the last message arrived */
	bool came_long;	      /* a message with a bounce buffer arrived since the last pause in polling */
	uint8_t spin_polls;   /* polls left in which to spin for the answer */
	uint8_t spin_misses;  /* consecutive spins without an answer */
	uint8_t spin_skipped; /* spins skipped, modulo 256 */

	struct ivs_nt nt;     /* how pieces for the peer are copied */
	uint32_t slot, epoch; /* of the other rank */
	bool deaf;	      /* this rank cannot wake the other one */
	struct ivs_list link; /* in home->rings while tx_ring is open */
};

/* Returns the word that the line at head has once it is written. */
static inline uint32_t ivs_lap_of(uint64_t head, uint32_t shift, uint32_t lap0)
{
	return 0x80000000U | ((uint32_t) (head >> shift) + lap0);
}

static inline struct nm_line *ivs_line_at(uint8_t *ring, uint64_t pos, uint32_t mask)
{
	return (struct nm_line *) (void *) (ring + (pos & mask) * NM_LAYOUT_LINE);
}

/*
 * Returns the lines of a message of len bytes. Lines are used in pairs: a core that polls for the next message also
 * prefetches the other line of its pair, which the sender may be writing.
 */
static inline uint32_t ivs_lines_for(size_t len)
{
	return len <= NM_LINE_FIRST_BYTES
		       ? 2
		       : (2 + (uint32_t) ((len - NM_LINE_FIRST_BYTES + NM_LINE_MORE_BYTES - 1) / NM_LINE_MORE_BYTES)) &
				 ~1U;
}

/* Copies len bytes of a message's payload, from byte at of its first line on. */
static inline void ivs_ring_get(struct ivs_ring *r, size_t at, uint8_t *dst, size_t len)
{
	const uint8_t *first = ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask)->payload;
	size_t n = NM_LINE_FIRST_BYTES - at, i;
	uint64_t pos = r->rx_head + 1;

	if (len <= n) {
		ivs_copy_small(dst, first + at, len);
		return;
	}
	/* Fetch all lines at once, not one after the other. */
	for (i = n; i < len; i += NM_LINE_MORE_BYTES)
		__builtin_prefetch(ivs_line_at(r->rx_ring, pos++, r->rx_mask));
	ivs_copy_small(dst, first + at, n);
	for (pos = r->rx_head + 1; len -= n; pos++) {
		dst += n;
		n = len < NM_LINE_MORE_BYTES ? len : NM_LINE_MORE_BYTES;
		ivs_copy_small(dst, (uint8_t *) ivs_line_at(r->rx_ring, pos, r->rx_mask) + 8, n);
	}
}

/* Returns true if a peer has sent something on a ring that is not polled in each call. */
static inline bool ivs_any_activity(const struct nm_slot *me)
{
	const uint64_t *w = (const uint64_t *) (const void *) me->activity;

	return __atomic_load_n(&w[0], __ATOMIC_RELAXED) | __atomic_load_n(&w[1], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[2], __ATOMIC_RELAXED) | __atomic_load_n(&w[3], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[4], __ATOMIC_RELAXED) | __atomic_load_n(&w[5], __ATOMIC_RELAXED) |
	       __atomic_load_n(&w[6], __ATOMIC_RELAXED) | __atomic_load_n(&w[7], __ATOMIC_RELAXED);
}

/* Like ivs_any_activity, for an eighth of the peers; turn selects which. */
static inline bool ivs_some_activity(const struct nm_slot *me, uint32_t turn)
{
	const uint64_t *w = (const uint64_t *) (const void *) me->activity;

	return __atomic_load_n(&w[turn % 8], __ATOMIC_RELAXED);
}

/* Shows a sender how much of its ring was read, if that is more than this many lines beyond what it has been shown. */
static inline void ivs_ring_show_from(struct ivs_ring *r, uint32_t lines)
{
	if (r->rx_head - r->rx_shown > lines) {
		r->rx_shown = r->rx_head;
		__atomic_store_n(&r->rx_ctl->tail, r->rx_head, __ATOMIC_RELEASE);
	}
}

/*
 * Shows the tail once for each half of the ring: until its line is fetched, messages that this rank sends wait in the
 * store buffer.
 */
static inline void ivs_ring_show(struct ivs_ring *r)
{
	ivs_ring_show_from(r, r->rx_mask / 2);
}

/* Consumes the next message, of this many lines. now: the lines freed are to be shown to the sender at once. */
static inline void ivs_ring_take(struct ivs_ring *r, uint32_t lines, bool now)
{
	r->rx_head += lines;
	if (now)
		r->rx_shown = r->rx_head - r->rx_mask - 1;
}

/* Notes that the current message has a bounce buffer of len bytes. */
static inline void ivs_ring_bounced(struct ivs_ring *r, size_t len)
{
	r->came_long = len <= IVS_APART_MAX;
}

/*
 * Returns how many cycles the next poll waits after a message with a bounce buffer. A rank that has sent such messages
 * to others in between may wait for this peer with each of its messages, as in a ring of ranks: it does not wait longer
 * than for short ones.
 */
static inline uint64_t ivs_quiet_long(struct ivs_ring *r)
{
	uint32_t before = r->run_bounced;

	r->came_long = false;
	r->run_bounced = r->home->bounced;
	return r->run_bounced == before ? IVS_QUIET_LONG_CYCLES : IVS_QUIET_CYCLES;
}

/* Notes that a message has arrived in the call of this number. */
static inline void ivs_ring_use(struct ivs_ring *r, uint32_t tick)
{
	r->used = tick;
}

/*
 * Slows polling down during a stream. A receiver that polls each line while it is being written slows down a sender of
 * many messages, so that after some of them the next poll waits for more to arrive. Reading a bounce buffer while the
 * next one is being written also slows the sender down: the receiver's CPU prefetches lines, which the sender then has
 * to fetch back. n: messages that have arrived in this call.
 */
static inline void ivs_pace(struct ivs_ring *r, int n)
{
	if (r->tx_head != r->run_head) {
		r->run_head = r->tx_head;
		r->run = 0;
		r->came_long = false;
		return;
	}
	r->run += (uint32_t) n;
	if (r->run >= IVS_RUN_LENGTH) {
		r->run = IVS_RUN_LENGTH;
		r->quiet_until = ivs_cycles() + (unlikely(r->came_long) ? ivs_quiet_long(r) : IVS_QUIET_CYCLES);
	}
}

/* Returns true if the ring is not to be polled in this call. */
static inline bool ivs_ring_quiet(struct ivs_ring *r)
{
	if (!r->quiet_until)
		return false;
	if ((int64_t) (ivs_cycles() - r->quiet_until) < 0)
		return true;
	r->quiet_until = 0;
	return false;
}

/* Notifies a receiver that does not poll this ring in each call, and may sleep. */
void ivs_ring_notify(struct ivs_ring *r);
/*
 * Sends a complete message that fits the ring, in the shortest path. data: 8 bytes of remote CQ data, or NULL. Returns
 * false while the ring is full.
 */
bool ivs_eager_send(struct ivs_ring *r, uint8_t op, uint64_t tag, const uint64_t *data, const void *buf, size_t len);
/* Sends a message whose payload may need a bounce buffer. Returns 0, or -FI_EAGAIN while there is not enough room. */
int ivs_ring_send(struct ivs_ring *r, const struct ivs_packet *pkt);
/*
 * Sends a message without payload, whose fixed part of len bytes fits the first line (NM_LINE_FIRST_BYTES). Returns
 * false while the ring is full.
 */
bool ivs_ring_send_head(struct ivs_ring *r, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t len);
/* Frees what the receiver has read. Returns true if there is room for this many lines now. */
bool ivs_ring_reap(struct ivs_ring *r, uint32_t lines);

/*
 * Does work while no message is waiting that would soon be due between a message and its answer: it fetches lines from
 * the peer's cache.
 */
static inline void ivs_ring_idle(struct ivs_ring *r)
{
	ivs_ring_show_from(r, r->rx_mask / 4);
	if (unlikely(r->tx_head - r->tx_tail > r->tx_mask / 2 + 1) && r->tx_ring)
		ivs_ring_reap(r, 0);
}

/* Returns true if this many lines are known to be free. */
static inline bool ivs_ring_fits(const struct ivs_ring *r, uint32_t lines)
{
	return r->tx_head + lines - r->tx_tail <= r->tx_mask + 1;
}

/* Returns true if there is room for a message of this many lines. */
static inline bool ivs_ring_room(struct ivs_ring *r, uint32_t lines)
{
	return likely(ivs_ring_fits(r, lines)) || ivs_ring_reap(r, lines);
}

/* Attaches a bounce buffer to the last of these unpublished lines; it is freed when that line was read. */
static inline void ivs_ring_hold(struct ivs_ring *r, uint32_t lines, uint32_t bounce)
{
	r->tx_bounce[(r->tx_head + lines - 1) & r->tx_mask] = (uint16_t) (bounce + 1);
	r->tx_held++;
	r->home->bounced++;
}

/*
 * Allocates a bounce buffer of that many bytes, perhaps one that its receiver has just read. Returns IVS_NO_BOUNCE
 * without room.
 */
uint32_t ivs_ring_bounce(struct ivs_home *h, size_t bytes);
/* Like ivs_ring_bounce, for the offset of a packed buffer (ivs_bounce_seek). */
uint32_t ivs_ring_seek(struct ivs_home *h, size_t bytes, bool row);
/* Returns true if a message is waiting. */
static inline bool ivs_ring_pending(const struct ivs_ring *r)
{
	return r->rx_ring && __atomic_load_n(&ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask)->lap, __ATOMIC_RELAXED) ==
				     ivs_lap_of(r->rx_head, r->rx_shift, r->rx_lap0);
}

void ivs_ring_prefetch(const struct ivs_ring *r);
/* Prepares the rings between this rank and the one in slot; none is open yet. */
void ivs_ring_init(struct ivs_ring *r, struct ivs_home *h, uint32_t slot, uint32_t epoch);
/* Opens the ring to the other rank and shows it to that rank. Returns 0 or a negative error. */
int ivs_ring_open(struct ivs_ring *r);

/* A ring to this rank, as the rank in a slot shows it; checked to lie in that rank's area. */
struct ivs_ring_found {
	uint32_t slot, epoch; /* of the sender */
	uint32_t shift;	      /* the ring has 1 << shift lines */
	uint32_t lap0;	      /* the first lap's number */
	uint8_t *ctl;	      /* its struct nm_ring_ctl; the lines follow */
};

/* Finds the ring from the rank in slot to this one. Returns false if that rank shows none. */
bool ivs_ring_find(const struct ivs_home *h, uint32_t slot, struct ivs_ring_found *found);
/* Receives from that ring of the other rank from now on. */
void ivs_ring_attach(struct ivs_ring *r, const struct ivs_ring_found *found);
/* Closes both directions; another rank may get the ring's memory. */
void ivs_ring_close(struct ivs_ring *r);
/* Frees this process's memory for the rings. Nothing in the region is changed. */
void ivs_ring_forget(struct ivs_ring *r);
/* Frees the records of closed rings' memory. */
void ivs_ring_free_all(struct ivs_home *h);

#endif /* IVS_RING_H */
