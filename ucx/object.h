/* What the files of the transport share: interfaces, their peers, and the endpoints that lead to these. */
#ifndef IVU_OBJECT_H
#define IVU_OBJECT_H

#include "abi/ops.h"
#include "base.h"
#include "message.h"
#include "object/ep.h"

/*
 * Pieces of a bounce buffer each, of the long messages to a rank that shares a cache, which are written in a row. Then each
 * of them gets its turn: messages from or to the same memory find more of it in the caches. 1, 2, 4 and 8 MiB in a row had
 * 35, 34, 32 and 24 GB/s in place of 29, 27, 27 and 18; by turns of 4 pieces 32, 31, 28 and 25, but 256 KiB lost 4 % (Zen 4,
 * medians of 6 to 8 runs). Other ranks gain nothing by it.
 */
#define IVU_PUTS_ROW 16

struct ivu_flush {
	struct ivs_list link;
	uint64_t mark; /* ends when the receiver has read up to here */
	struct ivu_completion *comp;
};

struct ivu_peer {
	struct ivs_peer ivs;
	uint32_t packed;    /* bytes of the last tagged message that UCX packed for it */
	bool handling;	    /* a message of its is in hand */
	bool blocked;	    /* not connected, dead, or requests wait: the short way is closed */
	uint64_t put_mark;  /* tx_head behind the last put, */
	bool put;	    /* if there was one that is not known to be done */
	uint32_t puts_left; /* pieces that may be written in this call to progress, */
	uint32_t puts_tick; /* of ep->ticks */
	uint32_t ep_count;
	struct ivs_list eps;
	struct ivs_list pending; /* struct ivu_waiting */
	struct ivs_list flushes;
};

/* Do the pieces of long messages to it take turns? */
static inline bool ivu_puts_in_turns(const struct ivu_peer *peer)
{
	return !peer->ivs.ring.nt.way.on;
}

/* Another row of pieces may be written. */
static inline void ivu_puts_begin(struct ivu_peer *peer)
{
	peer->puts_left = IVU_PUTS_ROW;
	peer->puts_tick = peer->ivs.ep->ticks;
}

static inline struct ivu_peer *ivu_peer_of(struct ivs_peer *p)
{
	return ivs_entry(p, struct ivu_peer, ivs);
}

struct ivu_ep {
	struct ivu_iface *iface; /* first, as UCX has it */
	struct ivu_peer *peer;
	struct ivs_list link; /* in peer->eps */
	bool failed;	      /* UCX knows */
};

/* In a pending request's bytes of ours. */
struct ivu_waiting {
	struct ivs_list link;
	struct ivu_ep *ep;
};

_Static_assert(sizeof(struct ivu_waiting) <= IVU_PENDING_PRIV, "UCX leaves no more");

struct ivu_iface {
	struct ivu_iface_base shown; /* first, as UCX has it */
	uint64_t came;		     /* messages */
	struct ivs_domain domain;
	struct ivs_ep ep;
	uint8_t *buffers;
	uint8_t *packed, *received;	/* in them: what UCX packs, or a put's pieces; a message of ivu_am_max() */
	uint32_t puts;			/* peers with puts that are not known to be done */
	unsigned int forks;		/* ivu_forks when it was opened */
	int timer;			/* wakes UCX, -1: was not asked for */
	uint64_t idle_since, idle_came; /* ns; what had come then */
	struct ivu_device_addr addr;
	uint8_t message[IVU_INLINE_MAX + 8] __attribute__((aligned(64)));
};

/*
 * The most bytes of an active message, header and data: what is longer was not sent by a transport of ours. UCX keeps a message of
 * over 1 KiB that no receive waits for in memory of that size, however long it is. So more than 32 KiB would be too much.
 */
static inline size_t ivu_am_max(const struct ivs_region *r)
{
	return r->geo.bounce_bytes + IVU_WHOLE_HEADER;
}

/* The most bytes that are written to registered memory at once. */
static inline size_t ivu_put_max(const struct ivs_region *r)
{
	return IVU_PIECES * (size_t) r->geo.bounce_bytes;
}

static inline struct ivu_iface *ivu_iface_of(struct ivs_ep *ep)
{
	return ivs_entry(ep, struct ivu_iface, ep);
}

/* Was it opened by a process of which this one was forked off? Then it is its parent's. */
static inline bool ivu_alien(const struct ivu_iface *iface)
{
	return unlikely(iface->forks != ivu_forks);
}

#endif /* IVU_OBJECT_H */
