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
	uint8_t		kind;		/* OP_* */
	/* of a struct through, in its second line */
	bool		wanted;		/* its completion is */
	bool		room;		/* has data */
	bool		claims;
	uint16_t	err;		/* why it is cancelled */
};

enum {
	OP_RECEIVED,		/* struct buffer */
	OP_SENT,
	OP_THROUGH_SEND,	/* struct through */
	OP_THROUGH_RECV,
	OP_THROUGH_PEEK,
};

/*
 * A tagged message that the inner provider matches: one line for that provider, one for
 * us. System calls in between take most of the first-level cache: each line counts.
 */
struct through {
	struct op	op;
	union {
		struct ivs_list	link;	/* in ie->receives */
		struct through	*next;	/* free ones, or all blocks */
	};
	struct ivs_peer	*peer;
	void		*user;		/* the application's context */
	void		*buf;
	uint64_t	tag;
	size_t		len;
	uint8_t		data[];		/* IVS_INJECT_MAX bytes, or none */
};

_Static_assert(sizeof(struct through) == 128, "two lines");

/* Who takes tagged messages as they are: by the application's address. */
struct through_to {
	fi_addr_t	inner;		/* its address there */
	struct ivs_peer	*peer;		/* NULL: not looked up yet, or gone */
	uint64_t	sent;		/* messages to it that peer->through_sent does not count */
	bool		ready;		/* it knows of us: messages may be sent */
};

/* Who reads a queue: its completions go straight there while nothing is before them. */
struct sink {
	struct ivs_cq	*cq;		/* NULL: nobody */
	char		*out;
	fi_addr_t	*src;		/* NULL: not asked for */
	size_t		room, count;	/* completions */
};

struct buffer {
	struct op	op;
	struct buffer	*next;
	struct ivs_peer	*peer;		/* who it goes to */
	size_t		got;
	uint8_t		data[sizeof(struct wire) + IVS_INLINE_MAX + PIECE];
};

struct inner_ep {
	/* first what every message needs */
	struct fid_ep	*ep;
	struct fid_cq	*cq;
	size_t		inject;		/* bytes that it takes at once */
	struct through_to *to;
	size_t		to_size;
	struct through	*ops_free[2];	/* without and with room for data */
	size_t		sending;	/* that have not completed */
	struct ivs_list	receives;	/* struct through: posted, not completed */
	struct buffer	*held;		/* arrived before their turn, or without room */
	bool		sources;	/* whose a message is has to be told */
	struct fi_ops_tagged tagged;	/* through_plain.c's, else tagged.c's */

	struct ivs_inner *inner;
	struct fid_av	*av;
	struct fid_mr	*mr;
	int		wait_fd;	/* readable when cq has something, -1: none */
	struct buffer	*buffers;
	struct buffer	*free;		/* for sending */
	struct ivs_peer	*by_uid[UIDS];
	uint64_t	uid;
	uint32_t	ticks;
	bool		busy;
	/* through.c */
	struct through	*ops_all;
	struct ivs_peer	**known;	/* by the inner provider's address */
	size_t		known_size;
};

/* The peer's address in the inner provider's AV; false: there is none. */
bool ivs_inner_address(struct ivs_peer *peer);

/* Handles what has arrived, as ivs_inner_poll() does. */
int ivs_inner_read(struct ivs_ep *ep, struct sink *sink);

/* through.c: makes more of the free ones. Gives false if there is no memory. */
bool ivs_through_more(struct inner_ep *ie, bool room);
/* What the inner provider says of tagged messages. */
void ivs_through_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e,
		      fi_addr_t src, struct sink *sink);
void ivs_through_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e);
void ivs_through_known(struct inner_ep *ie, struct ivs_peer *peer);
void ivs_through_free(struct inner_ep *ie);
/* through_plain.c: from now on the endpoint's plain calls take the short way. */
void ivs_through_plain(struct ivs_ep *ep);

static inline struct through *ivs_through_get(struct inner_ep *ie, bool room)
{
	struct through *t = ie->ops_free[room];

	if (unlikely(!t)) {
		if (!ivs_through_more(ie, room))
			return NULL;
		t = ie->ops_free[room];
	}
	ie->ops_free[room] = t->next;
	return t;
}

static inline void ivs_through_put(struct inner_ep *ie, struct through *t)
{
	t->next = ie->ops_free[t->op.room];
	ie->ops_free[t->op.room] = t;
}

#endif /* IVS_INNER_EP_H */
