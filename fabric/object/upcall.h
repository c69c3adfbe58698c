/*
 * What the ring and the core provider call of the protocol above them, which defines it. These are
 * the only functions that a folder of fabric/ may call of a folder above it. ucx/ has a protocol of its own.
 */
#ifndef IVS_UPCALL_H
#define IVS_UPCALL_H

#include "object/ep.h"

/* proto/receive.c: what the messages in this library's rings are, NM_PROTOCOL_*. */
extern const uint8_t ivs_protocol;

/* proto/receive.c: handles a message from peer. Returns false if there is no room for it now. */
bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags,
		 uint64_t tag, const void *fixed, const uint8_t *payload, size_t len);

/* proto/rendezvous.c: a message was read through the core provider. err: FI_EAGAIN: it could not be begun; or positive. */
void ivs_core_fetched(struct ivs_msg *msg, int err);

/* proto/peer.c */
/* Ends all that is under way with a peer; err is positive. */
void ivs_peer_dead(struct ivs_peer *peer, int err);
/* The peer in this slot with this epoch, made if it is not known. NULL: there is no memory. */
struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch);
/* The peer with this address, made if it is not known. NULL: there is no memory. */
struct ivs_peer *ivs_peer_by_addr(struct ivs_ep *ep, const struct ivs_addr *addr);
/* The peer of an entry of the AV. NULL and a negative *err: there is none, or not yet (-FI_EAGAIN). */
struct ivs_peer *ivs_peer_lookup(struct ivs_ep *ep, fi_addr_t addr, int *err);

/* proto/progress.c: handles what has arrived for any of the domain's endpoints. */
void ivs_domain_progress(struct ivs_domain *domain);

#endif /* IVS_UPCALL_H */
