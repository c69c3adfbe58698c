/* An endpoint's part of the inner provider: inner.c, and through.c. */
#ifndef IVS_INNER_EP_H
#define IVS_INNER_EP_H

#include "inner.h"

#define BUFFERS		64	/* each for sending and for receiving, an endpoint */
#define PIECE		32768	/* bytes of payload in one message */
#define UIDS		1024	/* buckets; a power of two */

struct ivs_inner {
	struct fi_info	*info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	bool		tagged;		/* it takes an application's tagged messages as they are */
};

/* What comes before the fixed part and the payload on the wire. */
struct wire {
	uint64_t	uid;		/* of the sending endpoint, random */
	uint64_t	tag;
	uint8_t		op;		/* IVS_OP_*, or OP_HELLO */
	uint8_t		flags;
	uint16_t	fixed_len;
	uint32_t	len;		/* bytes of payload */
	uint32_t	seq;		/* a large one may arrive after the next small one */
	uint32_t	pad;
};

#define OP_HELLO 255	/* the payload is the sender's struct ivs_addr */

/* What a completion of the inner provider's belongs to. */
struct op {
	struct fi_context2 context;	/* first: completions point to it */
	enum {
		OP_RECEIVED,		/* struct buffer */
		OP_SENT,
		OP_THROUGH_SEND,	/* struct through */
		OP_THROUGH_RECV,
		OP_THROUGH_PEEK,
	} kind;
};

struct buffer {
	struct op	op;
	struct buffer	*next;
	struct ivs_peer	*peer;		/* who it goes to */
	size_t		got;
	uint8_t		data[sizeof(struct wire) + IVS_INLINE_MAX + PIECE];
};

struct inner_ep {
	struct ivs_inner *inner;
	struct fid_ep	*ep;
	struct fid_av	*av;
	struct fid_cq	*cq;
	struct fid_mr	*mr;
	int		wait_fd;	/* readable when cq has something, -1: none */
	struct buffer	*buffers;
	struct buffer	*free;		/* for sending */
	struct buffer	*held;		/* arrived before their turn, or without room */
	struct ivs_peer	*by_uid[UIDS];
	uint64_t	uid;
	uint32_t	ticks;
	bool		busy;
	bool		sources;	/* whose a message is has to be told */
	size_t		sending;	/* that have not completed */
	/* through.c */
	struct ivs_list	receives;	/* struct through: posted, not completed */
	struct through	*ops_free[2];	/* without and with room for data */
	struct through	*ops_all;
	struct ivs_peer	**known;	/* by the inner provider's address */
	size_t		known_size;
};

/* The peer's address in the inner provider's AV; false: there is none. */
bool ivs_inner_address(struct ivs_peer *peer);

/* through.c: what the inner provider says of tagged messages. */
void ivs_through_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e,
		      fi_addr_t src);
void ivs_through_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e);
void ivs_through_known(struct inner_ep *ie, struct ivs_peer *peer);
void ivs_through_free(struct inner_ep *ie);

#endif /* IVS_INNER_EP_H */
