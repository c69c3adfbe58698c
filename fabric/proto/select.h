/*
 * Selects the path for sends, for announced messages at the receiver, and for RMA. All such choices are made here
 * except two: ring/eager_send.h sends a short tagged message before this code is reached, and ring/nontemporal.c times
 * copies as it makes them.
 */
#ifndef IVS_SELECT_H
#define IVS_SELECT_H

#include "base/param.h"
#include "object/ep.h"
#include "base/message.h"
#include "tune.h"

/* How a send reaches its peer. */
enum ivs_send_way {
	IVS_SEND_WHOLE,	      /* in one message: in the ring, in a bounce buffer or over the core provider */
	IVS_SEND_READ,	      /* as an announcement (RTS): the receiver reads it in place */
	IVS_SEND_CORE_READ,   /* as an announcement over the core provider, through which the receiver reads it */
	IVS_SEND_PIECES,      /* in pieces, of which those beyond the window wait for a CTS */
	IVS_SEND_PASSTHROUGH, /* by the core provider, which matches it */
	IVS_SEND_TOO_LONG,    /* not at all: FI_INJECT of more than one message holds */
};

/* What a receiver does with an announced message. */
enum ivs_read_way {
	IVS_READ_REGION, /* copies it within the region */
	IVS_READ_COOP,	 /* reads a part of it, while the sender writes the rest (coop_copy.h) */
	IVS_READ_CMA,	 /* reads it from the sender's memory; if that fails, sends a CTS */
	IVS_READ_CORE,	 /* reads it through the core provider */
	IVS_READ_CTS,	 /* sends a CTS: its place is not known here */
	IVS_READ_FAILS,	 /* ends it with an error: its sender is dead */
};

/* How an RMA operation reaches its target. */
enum ivs_rma_way {
	IVS_RMA_REGION,	 /* by a copy: all its targets are in the region */
	IVS_RMA_CMA,	 /* through the kernel: no target is in the region, and the peer is a neighbour */
	IVS_RMA_MESSAGE, /* in a message: the target's owner executes it */
};

/* Returns true if a send of one piece, of len bytes, is written directly into the ring. flags: FI_*. */
static inline bool ivs_select_eager(const struct ivs_peer *peer, size_t len, uint64_t flags)
{
	return len + 8 <= ivs_param.inline_max && peer->channel == IVS_CHAN_RING &&
	       (!(flags & FI_DELIVERY_COMPLETE) || flags & FI_INJECT);
}

/* Like ivs_select_send(), for a message that is not short. */
enum ivs_send_way ivs_select_long(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len,
				  uint64_t flags, uint8_t *rts);

/*
 * Selects the path of a send of len bytes in count pieces; op is IVS_OP_TAGGED or IVS_OP_MSG. Sets *rts to the flags of
 * its announcement (IVS_F_REGION, IVS_F_COOP), for IVS_SEND_READ only. Inline, because it is soon decided for a short
 * message.
 */
static inline enum ivs_send_way ivs_select_send(struct ivs_peer *peer, uint8_t op, const struct iovec *iov,
						size_t count, size_t len, uint64_t flags, uint8_t *rts)
{
	if (unlikely(peer->addr.kind == IVS_ADDR_TAGGED && op == IVS_OP_TAGGED))
		return IVS_SEND_PASSTHROUGH;
	if (len <= peer->piece && (len < ivs_param.cma_min || flags & FI_INJECT))
		return IVS_SEND_WHOLE;
	return ivs_select_long(peer, iov, count, len, flags, rts);
}

/* Selects the path of a message announced with these flags, in niov pieces, of which rx receives len bytes. */
enum ivs_read_way ivs_select_read(const struct ivs_peer *peer, uint8_t flags, size_t niov, const struct ivs_rx *rx,
				  size_t len);

/*
 * Selects the path of an RMA operation. all, any: all or any of its targets are in the region, according to their
 * owner's table.
 */
enum ivs_rma_way ivs_select_rma(const struct ivs_peer *peer, bool all, bool any);

/*
 * Returns the bytes of each piece of a message of total bytes. Large pieces are copied faster; with small ones the
 * receiver begins to copy earlier.
 */
static inline size_t ivs_select_piece(const struct ivs_peer *peer, size_t total)
{
	size_t quarter = total / 4 & ~(size_t) 4095;

	return quarter < peer->piece && peer->channel == IVS_CHAN_RING && quarter >= IVS_BOUNCE ? quarter : peer->piece;
}

/* Returns the offset of [base, base + len) in the region, or -1 if it is not there. */
int64_t ivs_region_offset(const struct ivs_ep *ep, const void *base, size_t len);

#endif /* IVS_SELECT_H */
