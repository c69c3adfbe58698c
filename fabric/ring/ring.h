/* The two rings between this rank and another one (docs/region.md). This part knows neither endpoints nor peers. */
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
	/* to the other rank; first what every message needs */
	uint32_t tx_mask; /* lines - 1 */
	uint32_t tx_shift;
	uint32_t tx_lap0;
	uint8_t *tx_ring; /* NULL: it is not open */
	struct nm_ring_ctl *tx_ctl;
	uint64_t tx_head;
	uint64_t tx_tail;    /* what we know of the receiver's */
	uint16_t *tx_bounce; /* by line: bounce buffer + 1 that goes free with it, 0: none */
	uint32_t tx_held;    /* lines that have one */
	uint8_t *activity;   /* the receiver's byte for us */

	/* from it */
	uint8_t *rx_ring; /* NULL: there is none */
	struct nm_ring_ctl *rx_ctl;
	uint64_t rx_head;
	uint64_t rx_shown; /* tail as the sender knows it */
	uint32_t rx_mask;
	uint32_t rx_shift;
	uint32_t rx_lap0;

	uint64_t row_rx, row_tx; /* rx_head, and tx_head when it last changed */
	struct ivs_home *home;
	uint64_t run_head;    /* tx_head when the run began */
	uint64_t spin_head;   /* tx_head when we began to wait for an answer (spin.h) */
	uint64_t quiet_until; /* ivs_cycles() before which we do not poll */
	uint32_t run;	      /* messages in a row, with none from us in between */
	uint32_t run_bounced; /* home->bounced when a message with a bounce buffer last came in it, */
	uint32_t used;	      /* when something came, in calls of who polls it */
	bool came_long;	      /* if one has since the last poll that waited */
	uint8_t spin_polls;   /* that are left for it */
	uint8_t spin_misses;  /* in a row that did not come meanwhile */
	uint8_t spin_skipped; /* not waited for, modulo 256 */

	struct ivs_nt nt;     /* how pieces for it are copied */
	uint32_t slot, epoch; /* of the other rank */
	bool deaf;	      /* we cannot wake it */
	struct ivs_list link; /* in home->rings while tx_ring is open */
};

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
static inline void ivs_ring_get(struct ivs_ring *r, size_t at, uint8_t *dst, size_t len)
{
	const uint8_t *first = ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask)->payload;
	size_t n = NM_LINE_FIRST_BYTES - at, i;
	uint64_t pos = r->rx_head + 1;

	if (len <= n) {
		ivs_copy_small(dst, first + at, len);
		return;
	}
	/* All at once, not one after the other. */
	for (i = n; i < len; i += NM_LINE_MORE_BYTES)
		__builtin_prefetch(ivs_line_at(r->rx_ring, pos++, r->rx_mask));
	ivs_copy_small(dst, first + at, n);
	for (pos = r->rx_head + 1; len -= n; pos++) {
		dst += n;
		n = len < NM_LINE_MORE_BYTES ? len : NM_LINE_MORE_BYTES;
		ivs_copy_small(dst, (uint8_t *) ivs_line_at(r->rx_ring, pos, r->rx_mask) + 8, n);
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
static inline void ivs_ring_show_from(struct ivs_ring *r, uint32_t lines)
{
	if (r->rx_head - r->rx_shown > lines) {
		r->rx_shown = r->rx_head;
		__atomic_store_n(&r->rx_ctl->tail, r->rx_head, __ATOMIC_RELEASE);
	}
}

/* Once for each half: what is sent meanwhile waits in the store buffer until that line has come. */
static inline void ivs_ring_show(struct ivs_ring *r)
{
	ivs_ring_show_from(r, r->rx_mask / 2);
}

/* The next message, of this many lines, was read. now: what it frees is to be shown to its sender at once. */
static inline void ivs_ring_take(struct ivs_ring *r, uint32_t lines, bool now)
{
	r->rx_head += lines;
	if (now)
		r->rx_shown = r->rx_head - r->rx_mask - 1;
}

/* Notes that the message in hand has a bounce buffer of len bytes. */
static inline void ivs_ring_bounced(struct ivs_ring *r, size_t len)
{
	r->came_long = len <= IVS_APART_MAX;
}

/*
 * After a message with a bounce buffer: how many cycles the next poll waits. One who sends such messages to others meanwhile may
 * wait for this peer with each of its messages, as in a ring of ranks: that one does not wait longer than for short ones.
 */
static inline uint64_t ivs_quiet_long(struct ivs_ring *r)
{
	uint32_t before = r->run_bounced;

	r->came_long = false;
	r->run_bounced = r->home->bounced;
	return r->run_bounced == before ? IVS_QUIET_LONG_CYCLES : IVS_QUIET_CYCLES;
}

/* Notes that a message has arrived, in the call of this number. */
static inline void ivs_ring_use(struct ivs_ring *r, uint32_t tick)
{
	r->used = tick;
}

/*
 * A receiver that polls each line while it is being written slows down a sender of many
 * messages in a row. So after some of them the next poll waits for more to come. One that reads a bounce buffer while the
 * next one is being written slows it down as well: its CPU fetches lines ahead, which the sender then has to take back.
 * n: messages that have come in this call.
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

/* Is the ring to be left alone in this call? */
static inline bool ivs_ring_quiet(struct ivs_ring *r)
{
	if (!r->quiet_until)
		return false;
	if ((int64_t) (ivs_cycles() - r->quiet_until) < 0)
		return true;
	r->quiet_until = 0;
	return false;
}

/* ring.c: notifies a receiver that does not poll this ring in each call, and may sleep. */
void ivs_ring_notify(struct ivs_ring *r);
/*
 * A whole message that fits the ring: the shortest way there is. data: 8 bytes of
 * remote CQ data, or NULL. false: there is no room now.
 */
bool ivs_eager_send(struct ivs_ring *r, uint8_t op, uint64_t tag, const uint64_t *data, const void *buf, size_t len);
/* A message whose payload may need a bounce buffer. Returns 0, or -FI_EAGAIN if there is no room now. */
int ivs_ring_send(struct ivs_ring *r, const struct ivs_packet *pkt);
/*
 * A message without payload: its fixed part, len bytes, fits the first line (NM_LINE_FIRST_BYTES). false: there is
 * no room now.
 */
bool ivs_ring_send_head(struct ivs_ring *r, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t len);
/* Takes back what the receiver has read. Is there room for this many lines now? */
bool ivs_ring_reap(struct ivs_ring *r, uint32_t lines);

/*
 * While there is no message: does what would have to be done soon, between a message and its answer. It fetches lines
 * from the peer's cache.
 */
static inline void ivs_ring_idle(struct ivs_ring *r)
{
	ivs_ring_show_from(r, r->rx_mask / 4);
	if (unlikely(r->tx_head - r->tx_tail > r->tx_mask / 2 + 1) && r->tx_ring)
		ivs_ring_reap(r, 0);
}

/* Is there room for this many lines, as far as we know? */
static inline bool ivs_ring_fits(const struct ivs_ring *r, uint32_t lines)
{
	return r->tx_head + lines - r->tx_tail <= r->tx_mask + 1;
}

/* Is there room for a message of this many lines? */
static inline bool ivs_ring_room(struct ivs_ring *r, uint32_t lines)
{
	return likely(ivs_ring_fits(r, lines)) || ivs_ring_reap(r, lines);
}

/* A bounce buffer comes back when the last of these lines was read, which are not published yet. */
static inline void ivs_ring_hold(struct ivs_ring *r, uint32_t lines, uint32_t bounce)
{
	r->tx_bounce[(r->tx_head + lines - 1) & r->tx_mask] = (uint16_t) (bounce + 1);
	r->tx_held++;
	r->home->bounced++;
}

/* Takes a bounce buffer of that many bytes, perhaps one that its receiver has just read; IVS_NO_BOUNCE: there is no room. */
uint32_t ivs_ring_bounce(struct ivs_home *h, size_t bytes);
/* The same of a place for a packed one (ivs_bounce_seek). */
uint32_t ivs_ring_seek(struct ivs_home *h, size_t bytes, bool row);
/* Is there a message that was not handled? */
static inline bool ivs_ring_pending(const struct ivs_ring *r)
{
	return r->rx_ring && __atomic_load_n(&ivs_line_at(r->rx_ring, r->rx_head, r->rx_mask)->lap, __ATOMIC_RELAXED) ==
				     ivs_lap_of(r->rx_head, r->rx_shift, r->rx_lap0);
}

void ivs_ring_prefetch(const struct ivs_ring *r);
/* Prepares the rings between this rank and the one in slot; none is open yet. */
void ivs_ring_init(struct ivs_ring *r, struct ivs_home *h, uint32_t slot, uint32_t epoch);
/* Opens the ring to the other rank, and shows it to that. Returns 0 or a negative error. */
int ivs_ring_open(struct ivs_ring *r);

/* A ring to us, as the rank in a slot shows it; checked to lie in that rank's area. */
struct ivs_ring_found {
	uint32_t slot, epoch; /* of the sender */
	uint32_t shift;	      /* it has 1 << shift lines */
	uint32_t lap0;	      /* the first lap's number */
	uint8_t *ctl;	      /* its struct nm_ring_ctl; the lines follow */
};

/* Finds the ring from the rank in slot to us. Returns false if it shows none. */
bool ivs_ring_find(const struct ivs_home *h, uint32_t slot, struct ivs_ring_found *found);
/* Receives from that ring, which is the other rank's, from now on. */
void ivs_ring_attach(struct ivs_ring *r, const struct ivs_ring_found *found);
/* Sends and receives no more; another rank may get the ring's memory. */
void ivs_ring_close(struct ivs_ring *r);
/* Frees what this process knows of the rings. Nothing in the region is touched. */
void ivs_ring_forget(struct ivs_ring *r);
/* Forgets the memory of closed rings. */
void ivs_ring_free_all(struct ivs_home *h);

#endif /* IVS_RING_H */
