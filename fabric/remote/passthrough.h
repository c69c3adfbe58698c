/*
 * Tagged messages to and from ranks without a region: there is one channel only, so the
 * core provider's own matching is as good as ours, and nothing is copied on the way.
 */
#ifndef IVS_PASSTHROUGH_H
#define IVS_PASSTHROUGH_H

#include "object/ep.h"

/* A tagged send to a peer whose address says that it takes them so. */
ssize_t ivs_passthrough_send(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len, uint64_t tag,
			     uint64_t data, void *context, uint64_t flags);
/* A tagged receive of an endpoint with ep->passthrough; FI_PEEK, FI_CLAIM and FI_DISCARD, too. */
ssize_t ivs_passthrough_recv(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src, uint64_t tag,
			     uint64_t ignore, void *context, uint64_t flags);
/* Ends the receive with this context. -FI_ENOENT: there is none. */
ssize_t ivs_passthrough_cancel(struct ivs_ep *ep, void *context);
/* Ends the receives that only this peer, which is dead, could have answered. */
void ivs_passthrough_dead(struct ivs_peer *peer);
/* An address was inserted: it has to be known before its messages come. */
void ivs_passthrough_inserted(struct ivs_ep *ep, fi_addr_t addr);
/* An address was removed. */
void ivs_passthrough_removed(struct ivs_ep *ep, fi_addr_t addr);
/* Before the end: adds up what each peer was sent. */
void ivs_passthrough_report(struct ivs_ep *ep);
/*
 * Handles what has come for an endpoint. Up to count completions of cq, which is empty, go straight to buf, of the queue's
 * format, and their sources to src if it is not NULL. Returns how many.
 */
size_t ivs_passthrough_read(struct ivs_ep *ep, struct ivs_cq *cq, void *buf, size_t count, fi_addr_t *src);

#endif /* IVS_PASSTHROUGH_H */
