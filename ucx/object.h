/* The objects that the files of the transport share: interfaces, their peers, and the endpoints that refer to these. */
#ifndef IVU_OBJECT_H
#define IVU_OBJECT_H

#include "abi/ops.h"
#include "base.h"
#include "message.h"
#include "object/ep.h"

/*
 * The number of fragments, of a bounce buffer each, that are written consecutively of a long message to a rank that
 * shares a cache. Then the next message is served, because messages from or to the same memory find more of it in the
 * caches. Back-to-back, 1, 2, 4 and 8 MiB had 35, 34, 32 and 24 GB/s instead of 29, 27, 27 and 18; alternating after
 * 4 fragments 32, 31, 28 and 25, but 256 KiB lost 4 % (Zen 4, medians of 6 to 8 runs). Other ranks gain nothing by
 * it.
 */
#define IVU_PUTS_ROW 16

struct ivu_flush {
	struct ivs_list link;
	uint64_t mark; /* complete when the receiver has read up to here */
	struct ivu_completion *comp;
};

struct ivu_peer {
	struct ivs_peer ivs;
	uint32_t packed;    /* bytes of the last tagged message that UCX packed for it */
	bool handling;	    /* one of its messages is being handled */
	bool blocked;	    /* not connected, dead, or requests wait: the fast path is closed */
	uint64_t put_mark;  /* tx_head after the last put */
	bool put;	    /* a put may be incomplete */
	uint32_t puts_left; /* fragments that may be written in this call to progress */
	uint32_t puts_tick; /* ep->ticks in that call */
	uint32_t ep_count;
	struct ivs_list eps;
	struct ivs_list pending; /* struct ivu_waiting */
	struct ivs_list flushes;
};

/* Returns whether the fragments of long messages to a peer alternate. */
static inline bool ivu_puts_in_turns(const struct ivu_peer *peer)
{
	return !peer->ivs.ring.nt.way.on;
}

/* Permits another sequence of fragments. */
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
	struct ivu_iface *iface; /* first, as in UCX */
	struct ivu_peer *peer;
	struct ivs_list link; /* in peer->eps */
	bool failed;	      /* reported to UCX */
};

/* In the transport's part of a pending request. */
struct ivu_waiting {
	struct ivs_list link;
	struct ivu_ep *ep;
};

_Static_assert(sizeof(struct ivu_waiting) <= IVU_PENDING_PRIV, "UCX leaves no more");

struct ivu_iface {
	struct ivu_iface_base shown; /* first, as in UCX */
	uint64_t came;		     /* received messages */
	struct ivs_domain domain;
	struct ivs_ep ep;
	uint8_t *buffers;
	uint8_t *packed, *received; /* in them: data that UCX packs, or a put's fragments; a message of ivu_am_max() */
	uint32_t puts;		    /* peers with puts that may be incomplete */
	unsigned int forks;	    /* ivu_forks when it was opened */
	int timer;		    /* wakes UCX, -1: not requested */
	uint64_t idle_since, idle_came; /* ns; messages received by then */
	struct ivu_device_addr addr;
	uint8_t message[IVU_INLINE_MAX + 8] __attribute__((aligned(64)));
};

/*
 * Returns the maximum size of an active message, header and data, in bytes: a longer one was not sent by this
 * transport. UCX keeps a message of over 1 KiB without a matching receive in memory of that size, regardless of its
 * length. Therefore more than 32 KiB would be too much.
 */
static inline size_t ivu_am_max(const struct ivs_region *r)
{
	return r->geo.bounce_bytes + IVU_WHOLE_HEADER;
}

/* Returns the maximum number of bytes that are written to registered memory at once. */
static inline size_t ivu_put_max(const struct ivs_region *r)
{
	return IVU_PIECES * (size_t) r->geo.bounce_bytes;
}

static inline struct ivu_iface *ivu_iface_of(struct ivs_ep *ep)
{
	return ivs_entry(ep, struct ivu_iface, ep);
}

/* Returns whether the interface was opened before this process was forked, and therefore belongs to its parent. */
static inline bool ivu_alien(const struct ivu_iface *iface)
{
	return unlikely(iface->forks != ivu_forks);
}

#endif /* IVU_OBJECT_H */
