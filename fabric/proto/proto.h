/* The protocol: messages sent, matched and received, for whichever channel. */
#ifndef IVS_PROTO_H
#define IVS_PROTO_H

#include "object/ep.h"
#include "object/match.h"
#include "base/message.h"
#include "object/peers.h"
#include "proto/peer.h"
#include "remote/core.h"

/* deliver.c: operations that the core provider calls for received messages. */
extern const struct ivs_core_ops ivs_deliver;

/* send.c */
/* Sends a message. Returns 0, -FI_EAGAIN, or another error when the peer is gone. */
int ivs_packet_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/* Sends a message without payload, now or as soon as there is room. */
void ivs_ctl_send(struct ivs_peer *peer, uint8_t op, uint64_t tag);
void ivs_event_send(struct ivs_peer *peer, uint64_t data, uint64_t len);
struct ivs_tx *ivs_tx_get(struct ivs_ep *ep, struct ivs_peer *peer);
/* The answer to a read of peer's. It has no id, so it takes none of those that our own operations need. */
struct ivs_tx *ivs_response_get(struct ivs_peer *peer);
void ivs_tx_put(struct ivs_ep *ep, struct ivs_tx *tx);
/* Ends all reads of our memory through the core provider, which closes. */
void ivs_tx_hide_all(struct ivs_ep *ep);
/* Allocates what an endpoint needs to receive from a region of this many slots. Returns 0 or -FI_ENOMEM. */
int ivs_proto_enable(struct ivs_ep *ep, uint32_t slots);
/* Frees what the protocol keeps of an endpoint, once its peers are freed. */
void ivs_proto_free(struct ivs_ep *ep);

/* Counts an operation of ours that takes memory of the target's. false: there are too many now. */
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
/* Puts tx among those with data to send, and sends what can be sent. */
void ivs_tx_start(struct ivs_peer *peer, struct ivs_tx *tx);
void ivs_peer_pump(struct ivs_peer *peer);
void ivs_ack_later(struct ivs_peer *peer, struct ivs_tx *tx);

/* A send of either kind; op is IVS_OP_TAGGED or IVS_OP_MSG. */
ssize_t ivs_send(struct ivs_ep *ep, uint8_t op, const struct iovec *iov, size_t count, fi_addr_t dest, uint64_t tag,
		 uint64_t data, void *context, uint64_t flags);

/*
 * receive.c: handles a message from peer, with this fixed part, tag and len bytes of payload; op is IVS_OP_*, flags
 * IVS_F_*. Returns false if no buffer is free.
 */
bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
		 const uint8_t *payload, size_t len);

/* ring_poll.c: handles what has arrived in the peer's ring. Returns how many messages. */
int ivs_ring_poll(struct ivs_ep *ep, struct ivs_peer *peer);

/* rendezvous.c */
/* A message was read through the core provider. err: 0, FI_EAGAIN if that could not begin, or another positive error. */
void ivs_core_fetched(struct ivs_msg *msg, int err);
/* Brings a message and its receive together. */
void ivs_msg_attach(struct ivs_ep *ep, struct ivs_msg *msg, struct ivs_rx *rx);
void ivs_msg_free(struct ivs_ep *ep, struct ivs_msg *msg);
/* Says to its sender that a message has been received, if that is wanted. */
void ivs_msg_ack(const struct ivs_msg *msg);
/* The sender says that it writes no more of a message that both copy. */
void ivs_msg_coop_end(struct ivs_ep *ep, struct ivs_peer *peer, uint32_t id);
/* Posts a receive, or lets it take a message that is there. Consumes rx. */
void ivs_rx_post(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged);

/* progress.c */
void ivs_ep_progress(struct ivs_ep *ep);
/* Handles what has arrived for any of the domain's endpoints. */
void ivs_domain_progress(struct ivs_domain *domain);
/* Sends what waits in the peers that are queued for that, and ends those that are condemned. */
void ivs_ep_serve(struct ivs_ep *ep);
/* Before sleeping: from now on senders set their activity byte. */
void ivs_ep_cool(struct ivs_ep *ep);
/* Polls every peer's ring. */
void ivs_ep_poll_all(struct ivs_ep *ep);

/* report.c: logs which channels were in use, and how much. */
void ivs_report_use(struct ivs_ep *ep);

/*
 * Ends what peers are doing to the memory of mr, which is closed, with an error for them;
 * unless other regions hold the memory, too: an MPI registers a buffer once for each rank that reads it.
 */
void ivs_stop_access(struct ivs_domain *domain, const struct ivs_mr *mr);

/* cma.c */
/*
 * Reads total bytes of the peer's memory at remote into local, or writes them there.
 * Returns 0 or a negative error.
 */
int ivs_cma(struct ivs_peer *peer, bool write, const struct iovec *local, size_t nlocal, const struct iovec *remote,
	    size_t nremote, size_t total);

/* atomic_apply.c: does the operation on count elements at target; result and compare may be NULL. */
int ivs_atomic_apply(uint8_t type, uint8_t op, uint8_t kind, void *target, const void *operand, const void *compare,
		     void *result, size_t count);
size_t ivs_type_bytes(uint8_t type);
bool ivs_atomic_valid(uint8_t type, uint8_t op, uint8_t kind);

#endif /* IVS_PROTO_H */
