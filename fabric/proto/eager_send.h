/*
 * The shortest path of a tagged message: from the caller's buffer to the peer's ring. Every other message is left to
 * send.c.
 */
#ifndef IVS_PROTO_EAGER_SEND_H
#define IVS_PROTO_EAGER_SEND_H

#include "object/ep.h"
#include "ring/eager_send.h"

/*
 * Sends a tagged message to dest; data: 8 bytes of remote CQ data, or NULL. Returns false, without having done
 * anything, if the message needs the general path.
 */
static inline bool ivs_eager_send_tagged(struct ivs_ep *ep, fi_addr_t dest, uint64_t tag, const uint64_t *data,
					 const void *buf, size_t len)
{
	uint32_t lines = ivs_lines_for((data ? 8 : 0) + len);
	struct ivs_peer *p;

	if (unlikely(dest >= ep->peers_size || len > ep->short_max))
		return false;
	p = ep->peers[dest];
	if (unlikely(!p || p->channel != IVS_CHAN_RING || !ivs_ring_fits(&p->ring, lines)))
		return false;
	ivs_eager_send_lines(&p->ring, lines, IVS_OP_TAGGED, tag, data, buf, len);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
	return true;
}

#endif /* IVS_PROTO_EAGER_SEND_H */
