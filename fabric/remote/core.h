/*
 * The connection to other hosts: an endpoint of another provider, opened through libfabric's public interface. It
 * carries only untagged messages; this provider does the matching.
 */
#ifndef IVS_CORE_H
#define IVS_CORE_H

#include "object/ep.h"
#include "base/message.h"

struct ivs_core;

/* Functions that the core provider calls for received messages. They are set when the endpoint is enabled. */
struct ivs_core_ops {
	/*
	 * Handles a message from peer: op is IVS_OP_*, flags IVS_F_*, with its fixed part and len bytes of payload.
	 * Returns false if there is not enough room now: it is then called again for the message.
	 */
	bool (*receive)(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag,
			const void *fixed, const uint8_t *payload, size_t len);
	/*
	 * Handles the end of reading a message (fetch.h). err: 0, FI_EAGAIN if reading could not begin, or another
	 * positive error.
	 */
	void (*fetched)(struct ivs_msg *msg, int err);
	/* Returns the peer with this address, and creates it if it is unknown. Returns NULL without memory. */
	struct ivs_peer *(*peer_by_addr)(struct ivs_ep *ep, const struct ivs_addr *addr);
	/* Returns the peer of an entry of the AV, or NULL and a negative *err, -FI_EAGAIN if it does not exist yet. */
	struct ivs_peer *(*peer_lookup)(struct ivs_ep *ep, fi_addr_t addr, int *err);
	/* Calls ivs_core_hide() (fetch.h) for every send whose memory peers may still read. */
	void (*hide_all)(struct ivs_ep *ep);
};

/* Returns true if a core provider may be used, as far as is known without opening it (choose.c). */
bool ivs_core_wanted(void);
/* Opens a core provider for the domain. Returns 0 or a negative error with *core NULL; -FI_ENODATA: none is used. */
int ivs_core_open(struct ivs_domain *domain, struct ivs_core **core);
void ivs_core_close(struct ivs_core *core);
/* Opens an endpoint's part of it, which calls ops, and sets ep->addr (core.c). Returns 0 or a negative error. */
int ivs_core_enable(struct ivs_ep *ep, const struct ivs_core_ops *ops);
void ivs_core_disable(struct ivs_ep *ep);
/* Returns true if it can match an application's tagged messages. */
bool ivs_core_passthrough(const struct ivs_domain *domain);
/* Prepares a new peer's part. */
void ivs_core_peer_init(struct ivs_peer_core *core);
/* Announces this rank to the peer (wire.c). Returns 0, -FI_EAGAIN or another negative error. */
int ivs_core_connect(struct ivs_peer *peer);
/* Sends a message. Returns 0, -FI_EAGAIN if the queue is full, or another negative error. */
int ivs_core_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/*
 * Checks a peer on another host from time to time: asks whether messages sent without a completion have arrived. A
 * question without an answer ends the peer. Returns false if no question can be sent for as long as the timeout of dead
 * ranks.
 */
bool ivs_core_check(struct ivs_peer *peer);
/* Handles messages that have arrived (core.c). Returns their number. */
int ivs_core_poll(struct ivs_ep *ep);
/* Handles waiting messages before sleeping. Returns true if the next one wakes this rank. */
bool ivs_core_sleep(struct ivs_ep *ep);

#endif /* IVS_CORE_H */
