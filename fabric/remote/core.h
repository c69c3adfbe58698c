/*
 * The way to other hosts: an endpoint of another provider, opened through libfabric's
 * public interface. It carries untagged messages only; matching is ours.
 */
#ifndef IVS_CORE_H
#define IVS_CORE_H

#include "object/ep.h"
#include "base/message.h"

struct ivs_core;

/* Operations that the core provider calls for received messages. They are set when the endpoint is enabled. */
struct ivs_core_ops {
	/*
	 * A message from peer: op is IVS_OP_*, flags IVS_F_*, with its fixed part and len bytes of payload. Returns false if
	 * there is no room for it now: it comes again.
	 */
	bool (*receive)(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag,
			const void *fixed, const uint8_t *payload, size_t len);
	/* A message was read (fetch.h). err: 0, FI_EAGAIN if reading could not begin, or another positive error. */
	void (*fetched)(struct ivs_msg *msg, int err);
	/* The peer with this address, created if it is unknown. NULL: out of memory. */
	struct ivs_peer *(*peer_by_addr)(struct ivs_ep *ep, const struct ivs_addr *addr);
	/* The peer of an entry of the AV. NULL and a negative *err: there is none, or not yet (-FI_EAGAIN). */
	struct ivs_peer *(*peer_lookup)(struct ivs_ep *ep, fi_addr_t addr, int *err);
	/* Calls ivs_core_hide() (fetch.h) for every send whose memory peers may still read. */
	void (*hide_all)(struct ivs_ep *ep);
};

/* choose.c: is there to be one, as far as can be said without opening it? */
bool ivs_core_wanted(void);
/* Opens it for the domain. -FI_ENODATA: there is none; then *core is NULL. */
int ivs_core_open(struct ivs_domain *domain, struct ivs_core **core);
void ivs_core_close(struct ivs_core *core);
/* core.c: opens an endpoint's part of it, which calls ops, and sets ep->addr. Returns 0 or a negative error. */
int ivs_core_enable(struct ivs_ep *ep, const struct ivs_core_ops *ops);
void ivs_core_disable(struct ivs_ep *ep);
/* Does it take an application's tagged messages as they are? */
bool ivs_core_passthrough(const struct ivs_domain *domain);
/* Prepares a new peer's part. */
void ivs_core_peer_init(struct ivs_peer_core *core);
/* wire.c: makes ourselves known to the peer. Returns 0, -FI_EAGAIN or another negative error. */
int ivs_core_connect(struct ivs_peer *peer);
/* Sends a message. Returns 0, -FI_EAGAIN: the queue is full, or another negative error. */
int ivs_core_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/*
 * From time to time, for a peer on another host: asks whether it has got what went without a completion. An answer that
 * does not come ends the peer. Returns false if no question can be sent for as long as the dead are waited for.
 */
bool ivs_core_check(struct ivs_peer *peer);
/* core.c: handles what has arrived. Returns how many messages. */
int ivs_core_poll(struct ivs_ep *ep);
/* Before sleeping: handles what is there. Returns true if what comes next wakes us. */
bool ivs_core_sleep(struct ivs_ep *ep);

#endif /* IVS_CORE_H */
