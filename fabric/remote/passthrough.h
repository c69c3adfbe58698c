/*
 * Tagged messages to and from ranks without a region: they have only one channel, so that the core provider's own
 * matching is sufficient, and nothing is copied on the way.
 */
#ifndef IVS_PASSTHROUGH_H
#define IVS_PASSTHROUGH_H

#include "object/ep.h"

/* Sends a tagged message to a peer whose address is IVS_ADDR_TAGGED. Returns 0 or a negative error. */
ssize_t ivs_passthrough_send(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len, uint64_t tag,
			     uint64_t data, void *context, uint64_t flags);
/*
 * Posts a tagged receive of an endpoint with ep->passthrough, also with FI_PEEK, FI_CLAIM and FI_DISCARD. Returns 0 or
 * a negative error.
 */
ssize_t ivs_passthrough_recv(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src, uint64_t tag,
			     uint64_t ignore, void *context, uint64_t flags);
/* Cancels the receive with this context. Returns -FI_ENOENT if there is none. */
ssize_t ivs_passthrough_cancel(struct ivs_ep *ep, void *context);
/* Ends the receives that only this peer, which is dead, could have answered. */
void ivs_passthrough_dead(struct ivs_peer *peer);
/* Handles an inserted address, which has to be known before its messages arrive. */
void ivs_passthrough_inserted(struct ivs_ep *ep, fi_addr_t addr);
/* Handles a removed address. */
void ivs_passthrough_removed(struct ivs_ep *ep, fi_addr_t addr);
/* Adds up the messages sent to each peer, before the endpoint closes. */
void ivs_passthrough_report(struct ivs_ep *ep);
/*
 * Handles completions for an endpoint. Up to count completions of cq, which is empty, are passed directly to buf, in
 * the queue's format, and their sources to src if it is not NULL. Returns their number.
 */
size_t ivs_passthrough_read(struct ivs_ep *ep, struct ivs_cq *cq, void *buf, size_t count, fi_addr_t *src);

#endif /* IVS_PASSTHROUGH_H */
