/*
 * The messages between two ranks, alike in a ring and over an inner provider: a
 * head (op, flags, tag), a fixed part that depends on op, then payload. All that is
 * read here comes from somebody who may be hostile.
 */
#ifndef IVS_PROTO_H
#define IVS_PROTO_H

#include "ivshmem.h"

enum ivs_op {
	IVS_OP_NONE,
	IVS_OP_TAGGED,		/* a whole message */
	IVS_OP_MSG,
	IVS_OP_TAGGED_LONG,	/* the start of one: struct ivs_long */
	IVS_OP_MSG_LONG,
	IVS_OP_TAGGED_PULL,	/* where one can be read: struct ivs_pull */
	IVS_OP_MSG_PULL,
	IVS_OP_DATA,		/* more of one: struct ivs_part, tag is the offset */
	IVS_OP_CLEAR,		/* send the rest of it: tag is the id */
	IVS_OP_ACK,		/* it has been received: tag is status << 32 | id */
	IVS_OP_WRITE,		/* struct ivs_rma, then data */
	IVS_OP_READ,		/* struct ivs_rma */
	IVS_OP_RESULT,		/* of a read or fetch: struct ivs_part, tag is the offset */
	IVS_OP_ATOMIC,		/* struct ivs_atomic, then operands */
	IVS_OP_EVENT,		/* a direct write with remote CQ data, the tag: 8 bytes of length */
	IVS_OP_JOINT,		/* write a part of it yourself: struct ivs_joint */
	IVS_OP_JOINED,		/* that is over: tag is pieces written << 32 | id */
	IVS_OP_COUNT
};

#define IVS_F_CHUNK	1	/* the payload is in a chunk: struct ivs_chunk comes first */
#define IVS_F_DATA	2	/* 8 bytes of remote CQ data */
#define IVS_F_ACK	4	/* the sender wants an ACK; 8 bytes with the id */
#define IVS_F_CLEAR	8	/* the sender waits for a CLEAR */
#define IVS_F_REGION	16	/* PULL: the addresses are offsets in the region */
#define IVS_F_JOINT	32	/* PULL: the sender copies a part of it, if it is asked to */
#define IVS_F_PAST	64	/* CHUNK: it was written past the caches */
#define IVS_F_TELL	128	/* CHUNK: nm_ring_ctl.cost is to say what reading it takes */

struct ivs_chunk {
	uint32_t	index;		/* of the sender's chunks */
	uint32_t	len;		/* bytes */
};

struct ivs_long {
	uint64_t	total;		/* bytes */
	uint64_t	data;
	uint32_t	id;
	uint32_t	pad;
};

struct ivs_pull {
	uint64_t	total;
	uint64_t	data;
	uint32_t	id;
	uint32_t	count;
	struct {
		uint64_t addr, len;
	}		iov[IVS_IOV_MAX];
};

struct ivs_part {
	uint32_t	id;
	int32_t		status;		/* RESULT: 0 or a negative error */
};

struct ivs_rma {
	uint64_t	total;
	uint64_t	data;
	uint32_t	id;
	uint32_t	count;
	struct {
		uint64_t addr, len, key;
	}		rma[IVS_IOV_MAX];
};

struct ivs_atomic {
	struct ivs_rma	rma;		/* lens in bytes; total: of one operand */
	uint8_t		type;		/* enum fi_datatype */
	uint8_t		op;		/* enum fi_op */
	uint8_t		kind;		/* IVS_ATOMIC_* */
	uint8_t		pad[5];
};

/* What a receiver asks the sender of a PULL to do (joint.c). */
struct ivs_joint {
	uint64_t	addr;		/* of the receiver's memory */
	uint64_t	len;		/* bytes */
	uint32_t	id;
	uint32_t	gen;		/* of nm_ring_ctl.joint */
	uint32_t	piece;		/* bytes */
	uint32_t	pad;
	uint64_t	check;		/* SipHash under the receiver's key */
};

#define IVS_ATOMIC_WRITE	0	/* changes the target */
#define IVS_ATOMIC_FETCH	1	/* and gives what was there */
#define IVS_ATOMIC_COMPARE	2	/* if the operand's second half says so */

_Static_assert(sizeof(struct ivs_atomic) + sizeof(struct ivs_chunk) <= IVS_INLINE_MAX,
	       "every fixed part fits a ring");

/* Bytes of the fixed part of op. */
static inline size_t ivs_fixed_bytes(uint8_t op, uint8_t flags)
{
	switch (op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG:
		return (flags & IVS_F_DATA ? 8 : 0) + (flags & IVS_F_ACK ? 8 : 0);
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG:
		return sizeof(struct ivs_long);
	case IVS_OP_TAGGED_PULL:
	case IVS_OP_MSG_PULL:
		return sizeof(struct ivs_pull);
	case IVS_OP_DATA:
	case IVS_OP_RESULT:
		return sizeof(struct ivs_part);
	case IVS_OP_WRITE:
	case IVS_OP_READ:
		return sizeof(struct ivs_rma);
	case IVS_OP_ATOMIC:
		return sizeof(struct ivs_atomic);
	case IVS_OP_EVENT:
		return sizeof(uint64_t);
	case IVS_OP_JOINT:
		return sizeof(struct ivs_joint);
	default:
		return 0;
	}
}

/* A message on its way out. */
struct ivs_packet {
	uint8_t		op, flags;
	uint16_t	fixed_len;
	uint64_t	tag;
	const void	*fixed;
	const struct iovec *iov;	/* payload: len bytes from offset on */
	size_t		count, offset, len;
	bool		far;		/* a chunk for it is a far one (chunk.h) */
};

/* send.c: gives 0, -FI_EAGAIN, or another error when the peer is gone. */
int ivs_packet_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/* Sends a message without payload, now or as soon as there is room. */
void ivs_ctl_send(struct ivs_peer *peer, uint8_t op, uint64_t tag);
void ivs_event_send(struct ivs_peer *peer, uint64_t data, uint64_t len);
struct ivs_tx *ivs_tx_get(struct ivs_ep *ep, struct ivs_peer *peer);
void ivs_tx_put(struct ivs_ep *ep, struct ivs_tx *tx);
struct ivs_tx *ivs_tx_find(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t id);
void ivs_tx_complete(struct ivs_ep *ep, struct ivs_tx *tx, int err);
/* Puts tx among those with data to send, and sends what can be sent. */
void ivs_tx_start(struct ivs_peer *peer, struct ivs_tx *tx);
void ivs_peer_pump(struct ivs_peer *peer);
void ivs_peer_activate(struct ivs_peer *peer);
void ivs_ack_later(struct ivs_peer *peer, struct ivs_tx *tx);

/* A send of either kind; op is IVS_OP_TAGGED or IVS_OP_MSG. */
ssize_t ivs_send(struct ivs_ep *ep, uint8_t op, const struct iovec *iov, size_t count,
		 fi_addr_t dest, uint64_t tag, uint64_t data, void *context,
		 uint64_t flags);

/* ring.c */
/*
 * A whole message that fits the ring: the shortest way there is. data: 8 bytes of
 * remote CQ data, or NULL. false: there is no room now.
 */
bool ivs_ring_put(struct ivs_peer *peer, uint8_t op, uint64_t tag, const uint64_t *data,
		  const void *buf, size_t len);
int ivs_ring_send(struct ivs_peer *peer, const struct ivs_packet *pkt);
/*
 * take.c: up to count messages that have just come, straight to buf (of the queue's format) and,
 * if it is not NULL, src. Gives how many; 0: ivs_domain_progress() has to look; -FI_EAGAIN: there
 * is nothing.
 */
ssize_t ivs_take(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src);
/* Handles what has arrived. Gives how many messages. */
int ivs_ring_poll(struct ivs_ep *ep, struct ivs_peer *peer);
/* Is there a message that was not handled? */
bool ivs_ring_pending(const struct ivs_peer *peer);
void ivs_ring_prefetch(const struct ivs_peer *peer);
int ivs_ring_open(struct ivs_peer *peer);
/* Looks for a ring of slot's to us; gives the peer, or NULL. */
struct ivs_peer *ivs_ring_attach(struct ivs_ep *ep, uint32_t slot);
void ivs_ring_close(struct ivs_peer *peer);
void ivs_ring_free_all(struct ivs_ep *ep);

/* receive.c: a message from peer; gives false if there is no room for it now. */
bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags,
		 uint64_t tag, const void *fixed, const uint8_t *payload, size_t len);

/* match.c */
struct ivs_rx *ivs_rx_get(struct ivs_ep *ep);
void ivs_rx_put(struct ivs_ep *ep, struct ivs_rx *rx);
/*
 * Takes the first receive that fits out of the queue; of a multi-receive, a part
 * for total bytes. NULL: none.
 */
struct ivs_rx *ivs_match_posted(struct ivs_ep *ep, struct ivs_queue *q, bool tagged,
				struct ivs_peer *peer, uint64_t tag, size_t total);
/* The first unexpected message that fits, or NULL. */
struct ivs_msg *ivs_match_unexpected(struct ivs_list *ux, bool tagged,
				     struct ivs_peer *peer, uint64_t tag, uint64_t ignore);
/*
 * Ends a receive: len of total bytes were placed. err: 0 or positive. The receive is
 * given back.
 */
void ivs_rx_complete(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged,
		     struct ivs_peer *peer, size_t total, uint64_t tag, bool has_data,
		     uint64_t data, int err);
/* Brings a message and its receive together. */
void ivs_msg_attach(struct ivs_ep *ep, struct ivs_msg *msg, struct ivs_rx *rx);
void ivs_msg_free(struct ivs_ep *ep, struct ivs_msg *msg);
/* Is it a tagged message's start? */
bool ivs_msg_tagged(const struct ivs_msg *msg);
/* The sender has written done pieces of a message that both copy. false: that is nonsense. */
bool ivs_msg_joined(struct ivs_ep *ep, struct ivs_peer *peer, uint32_t id, uint32_t done);
/* Posts a receive, or gives it a message that is there. Consumes rx. */
void ivs_rx_post(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged);

/* cma.c */
/*
 * Reads total bytes of the peer's memory at remote into local, or writes them there.
 * Gives 0 or a negative error.
 */
int ivs_cma(struct ivs_peer *peer, bool write, const struct iovec *local, size_t nlocal,
	    const struct iovec *remote, size_t nremote, size_t total);

/* atomic.c: does the operation on count elements at target; result and compare may be NULL. */
int ivs_atomic_apply(uint8_t type, uint8_t op, uint8_t kind, void *target,
		     const void *operand, const void *compare, void *result, size_t count);
size_t ivs_type_bytes(uint8_t type);
bool ivs_atomic_valid(uint8_t type, uint8_t op, uint8_t kind);

#endif /* IVS_PROTO_H */
