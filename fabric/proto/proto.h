/* The protocol: sends, matches and receives messages over any channel. */
#ifndef IVS_PROTO_H
#define IVS_PROTO_H

#include "object/ep.h"
#include "object/match.h"
#include "base/message.h"
#include "object/peers.h"
#include "proto/peer.h"
#include "remote/core.h"

/* Functions that the core provider calls for received messages (deliver.c). */
extern const struct ivs_core_ops ivs_deliver;

/* Functions in send.c. */
/* Sends a message. Returns 0, -FI_EAGAIN, or another error if the peer is gone. */
int ivs_packet_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/* Sends a message without payload, now or as soon as there is room. */
void ivs_ctl_send(struct ivs_peer *peer, uint8_t op, uint64_t tag);
void ivs_event_send(struct ivs_peer *peer, uint64_t data, uint64_t len);
struct ivs_tx *ivs_tx_get(struct ivs_ep *ep, struct ivs_peer *peer);
/*
 * Allocates the answer to a peer's read. It has no id, so that it does not use up those of our own operations. Returns
 * NULL without memory.
 */
struct ivs_tx *ivs_response_get(struct ivs_peer *peer);
void ivs_tx_put(struct ivs_ep *ep, struct ivs_tx *tx);
/* Ends all reads of our memory through the core provider, which closes. */
void ivs_tx_hide_all(struct ivs_ep *ep);
/* Allocates what an endpoint needs to receive from a region of this many slots. Returns 0 or -FI_ENOMEM. */
int ivs_proto_enable(struct ivs_ep *ep, uint32_t slots);
/* Frees the protocol's state of an endpoint, once its peers are freed. */
void ivs_proto_free(struct ivs_ep *ep);

/* Counts one of our operations that uses the target's memory. Returns false if there are too many now. */
static inline bool ivs_tx_open(struct ivs_tx *tx, struct ivs_peer *peer, enum ivs_open kind)
{
	if (peer->proto.open_out[kind] >= IVS_OPEN_MAX)
		return false;
	peer->proto.open_out[kind]++;
	tx->open = (uint8_t) kind;
	return true;
}
struct ivs_tx *ivs_tx_find(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t id);
void ivs_tx_complete(struct ivs_ep *ep, struct ivs_tx *tx, int err);
/* Queues tx for sending, and sends as much as possible. */
void ivs_tx_start(struct ivs_peer *peer, struct ivs_tx *tx);
void ivs_peer_pump(struct ivs_peer *peer);
void ivs_ack_later(struct ivs_peer *peer, struct ivs_tx *tx);

/* Sends a message; op is IVS_OP_TAGGED or IVS_OP_MSG. Returns 0 or a negative error. */
ssize_t ivs_send(struct ivs_ep *ep, uint8_t op, const struct iovec *iov, size_t count, fi_addr_t dest, uint64_t tag,
		 uint64_t data, void *context, uint64_t flags);

/*
 * Handles a message from peer, with this fixed part, tag and len bytes of payload (receive.c); op is IVS_OP_*, flags
 * IVS_F_*. Returns false if no buffer is free.
 */
bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
		 const uint8_t *payload, size_t len);

/* Handles the messages that have arrived in the peer's ring (ring_poll.c). Returns their number. */
int ivs_ring_poll(struct ivs_ep *ep, struct ivs_peer *peer);

/* Functions in rendezvous.c. */
/*
 * Ends the reading of a message through the core provider. err: 0, FI_EAGAIN if it could not begin, or another positive
 * error.
 */
void ivs_core_fetched(struct ivs_msg *msg, int err);
/* Assigns a receive to a message. */
void ivs_msg_attach(struct ivs_ep *ep, struct ivs_msg *msg, struct ivs_rx *rx);
void ivs_msg_free(struct ivs_ep *ep, struct ivs_msg *msg);
/* Sends the ACK of a received message to its sender, if wanted. */
void ivs_msg_ack(const struct ivs_msg *msg);
/* Handles the sender's statement that it writes no more of a message that both copy. */
void ivs_msg_coop_end(struct ivs_ep *ep, struct ivs_peer *peer, uint32_t id);
/* Posts a receive, or assigns it a waiting message. Consumes rx. */
void ivs_rx_post(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged);

/* Functions in progress.c. */
void ivs_ep_progress(struct ivs_ep *ep);
/* Handles the messages that have arrived for any of the domain's endpoints. */
void ivs_domain_progress(struct ivs_domain *domain);
/* Sends the messages that wait in the queued peers, and ends the condemned ones. */
void ivs_ep_serve(struct ivs_ep *ep);
/* Makes senders set their activity byte from now on; called before sleeping. */
void ivs_ep_cool(struct ivs_ep *ep);
/* Polls every peer's ring. */
void ivs_ep_poll_all(struct ivs_ep *ep);

/* Logs the channels that were used, and how much (report.c). */
void ivs_report_use(struct ivs_ep *ep);

/*
 * Ends the peers' operations on the memory of mr, which is being closed, with an error for them, unless other
 * registrations also hold the memory: an MPI registers a buffer once for each rank that reads it.
 */
void ivs_stop_access(struct ivs_domain *domain, const struct ivs_mr *mr);

/* Functions in cma.c. */
/* Reads total bytes of the peer's memory at remote into local, or writes them there. Returns 0 or a negative error. */
int ivs_cma(struct ivs_peer *peer, bool write, const struct iovec *local, size_t nlocal, const struct iovec *remote,
	    size_t nremote, size_t total);

/*
 * Applies the operation to count elements at target (atomic_apply.c); result and compare may be NULL. Returns 0 or a
 * negative error.
 */
int ivs_atomic_apply(uint8_t type, uint8_t op, uint8_t kind, void *target, const void *operand, const void *compare,
		     void *result, size_t count);
size_t ivs_type_bytes(uint8_t type);
bool ivs_atomic_valid(uint8_t type, uint8_t op, uint8_t kind);

#endif /* IVS_PROTO_H */
