#include "proto/cma_policy.h"
#include "proto/coop_copy.h"
#include "proto/select.h"
#include "remote/fetch.h"
#include "ring/nontemporal.h"

int64_t ivs_region_offset(const struct ivs_ep *ep, const void *base, size_t len)
{
	const struct ivs_region *r = ep->domain->region;
	uintptr_t at = (uintptr_t) base, start;

	if (!r)
		return -1;
	start = (uintptr_t) r->base;
	if (at < start || at - start > r->header.size_bytes || len > r->header.size_bytes - (at - start))
		return -1;
	return (int64_t) (at - start);
}

/*
 * Returns true if the receiver may read the message in place: always in the region; in this process's memory if it is a
 * neighbour and that is faster. Sets *rts to the flags of the announcement.
 */
static bool readable(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len, uint8_t *rts)
{
	bool alone;
	size_t i;

	if (peer->channel != IVS_CHAN_RING)
		return false;
	for (i = 0; i < count; i++)
		if (ivs_region_offset(peer->ep, iov[i].iov_base, iov[i].iov_len) < 0)
			break;
	if (i == count) {
		*rts = IVS_F_REGION;
		return true;
	}
	*rts = 0;
	if (len < ivs_param.cma_min || len > ivs_param.cma_max)
		return false;
	/* If other messages are in flight, two copies, one on each core, are faster up to some size. */
	alone = ivs_list_empty(&peer->proto.waiting);
	if (len < IVS_CMA_BUSY_MIN && !alone)
		return false;
	if (len < IVS_CMA_POLICY_SURE && ivs_param.cma_measure && peer->proto.pid && ivs_nt_timed() &&
	    !ivs_cma_policy_better(&peer->proto.reads, len,
				   ivs_nt_cycles(&peer->ring.nt, peer->ring.tx_ctl, len, ivs_select_piece(peer, len)),
				   alone))
		return false;
	if (count == 1 && ivs_coop_fits(peer, len))
		*rts = IVS_F_COOP;
	return peer->proto.pid != 0;
}

/* Inline in both callers, which saves 46 of the 2,348 instructions of a message that CMA reads. */
inline __attribute__((always_inline)) enum ivs_send_way
ivs_select_long(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len, uint64_t flags, uint8_t *rts)
{
	if (flags & FI_INJECT)
		return IVS_SEND_TOO_LONG;
	if (readable(peer, iov, count, len, rts))
		return IVS_SEND_READ;
	if (peer->channel == IVS_CHAN_CORE && ivs_core_shows(peer, count, len))
		return IVS_SEND_CORE_READ;
	return len > peer->piece ? IVS_SEND_PIECES : IVS_SEND_WHOLE;
}

enum ivs_read_way ivs_select_read(const struct ivs_peer *peer, uint8_t flags, size_t niov, const struct ivs_rx *rx,
				  size_t len)
{
	if (peer->channel == IVS_CHAN_DEAD)
		return IVS_READ_FAILS;
	if (flags & IVS_F_CORE)
		return IVS_READ_CORE;
	if (flags & IVS_F_REGION)
		return IVS_READ_REGION;
	if (!niov)
		return IVS_READ_CTS;
	if (flags & IVS_F_COOP && rx->count == 1 && niov == 1 && peer->ring.rx_ctl && ivs_coop_fits(peer, len))
		return IVS_READ_COOP;
	return IVS_READ_CMA;
}

enum ivs_rma_way ivs_select_rma(const struct ivs_peer *peer, bool all, bool any)
{
	if (all)
		return IVS_RMA_REGION;
	/* The table's entries for our own memory are not trusted, because we know better. */
	return any || !peer->proto.pid || peer->proto.self ? IVS_RMA_MESSAGE : IVS_RMA_CMA;
}
