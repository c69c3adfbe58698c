/* An endpoint's part of the core provider, which the files of this folder share. */
#ifndef IVS_CORE_EP_H
#define IVS_CORE_EP_H

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "object/peers.h"
#include "region/numbers.h"
#include "remote/core.h"
#include "ring/copy.h"
#include "tune.h"

#define PIECE 32768 /* bytes of payload in one message */

struct ivs_core {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *spare; /* opened, to know that it can be: the next endpoint takes it */
	bool tagged;		  /* it takes an application's tagged messages as they are */
	bool reads;		  /* it reads a peer's memory (fetch.h) */
	bool injects;		  /* short messages go without a completion: send_wire() of wire.c */
};

/* What comes before the fixed part and the payload on the wire. */
struct wire {
	uint64_t uid; /* of the sending endpoint, random */
	uint64_t tag;
	uint8_t op; /* IVS_OP_*, or OP_HELLO */
	uint8_t flags;
	uint16_t fixed_len;
	uint32_t len;  /* bytes of payload */
	uint32_t seq;  /* a large one may arrive after the next small one */
	uint32_t seen; /* messages of the receiver's that the sender has handled */
};

#define OP_HELLO 255 /* the payload is the sender's struct ivs_addr */

/* An operation of ours in the core provider. Its completion points to it. */
struct op {
	struct fi_context2 context; /* first: completions point to it */
	uint8_t kind;		    /* OP_* */
	/* of a struct passthrough, in its second line */
	bool wanted; /* its completion is */
	bool room;   /* has data */
	bool claims;
	uint16_t err; /* why it is cancelled */
};

enum {
	OP_RECEIVED, /* struct buffer */
	OP_SENT,
	OP_ASKED,	     /* struct buffer: a question about the messages sent before it */
	OP_FETCH,	     /* fetch.c */
	OP_PASSTHROUGH_SEND, /* struct passthrough */
	OP_PASSTHROUGH_RECV,
	OP_PASSTHROUGH_PEEK,
};

/*
 * A tagged message that the core provider matches: one line for that provider, one for
 * us. System calls in between take most of the first-level cache: each line counts.
 */
struct passthrough {
	struct op op;
	union {
		struct ivs_list link;	  /* in ce->receives */
		struct passthrough *next; /* free ones, or all blocks */
	};
	struct ivs_peer *peer;
	void *user; /* the application's context */
	void *buf;
	uint64_t tag;
	size_t len;
	uint8_t data[]; /* IVS_INJECT_MAX bytes, or none */
};

_Static_assert(sizeof(struct passthrough) == 128, "two lines");

/* A peer that takes tagged messages as they are; by the application's address. */
struct passthrough_to {
	fi_addr_t addr;	       /* its address there */
	struct ivs_peer *peer; /* NULL: not found yet, or removed */
	uint64_t sent;	       /* messages to it that peer->core.passthrough_sent does not count */
	bool ready;	       /* it knows of us: messages may be sent */
};

/* The reader of a queue. Completions go straight to it while the queue is empty. */
struct sink {
	struct ivs_cq *cq; /* NULL: nobody */
	char *out;
	fi_addr_t *src;	    /* NULL: not asked for */
	size_t room, count; /* completions */
};

struct buffer {
	struct op op;
	struct buffer *next;
	struct ivs_peer *peer; /* its receiver */
	uint32_t upto;	       /* OP_ASKED: peer->core.sent then */
	uint32_t got;
	uint8_t data[sizeof(struct wire) + IVS_INLINE_MAX + PIECE];
};

struct core_ep {
	/* first what every message needs */
	struct fid_ep *ep;
	struct fid_cq *cq;
	size_t inject; /* bytes that it takes at once */
	struct passthrough_to *to;
	size_t to_size;
	struct passthrough *ops_free[2]; /* without and with room for data */
	size_t sending;			 /* that have not completed */
	struct ivs_list receives;	 /* struct passthrough: posted, not completed */
	struct buffer *held;		 /* arrived before their turn, or without room */
	struct ivs_list stalled;	 /* fetch.c: reads for which there was no room */
	bool sources;			 /* the source of a message has to be reported */
	struct fi_ops_tagged tagged;	 /* passthrough_plain.c's calls */
	struct fi_ops_tagged
		*general; /* the endpoint's own, which take what is not plain; NULL: tagged is not in use */

	struct ivs_core *core;
	const struct ivs_core_ops *ops; /* who gets what has come */
	size_t gathers;		   /* bytes up to which a message may go from two places: send_gathered(); 0: never */
	struct fid_domain *domain; /* of this endpoint alone: take_domain() */
	struct fid_av *av;
	struct fid_mr *mr;
	int wait_fd; /* readable when cq has something, -1: none */
	struct buffer *buffers;
	struct buffer *free; /* for sending */
	struct ivs_peer *by_uid[IVS_CORE_CHAINS];
	uint64_t uid;
	uint32_t ticks;	     /* calls that might have polled it */
	uint32_t came;	     /* ticks when a message came */
	uint32_t held_count; /* in held */
	bool busy;
	struct ivs_list fetches; /* fetch.c: under way */
	struct ivs_numbers keys; /* of memory that peers may read (ivs_core_show()) */
	/* passthrough.c */
	struct passthrough *ops_all;
	struct ivs_peer **known; /* by the core provider's address */
	size_t known_size;
};

/* wire.c: has a message received into the buffer. Returns 0 or a negative error. */
int ivs_wire_post(struct core_ep *ce, struct buffer *b);
/* Asks whether all that went to the peer has arrived; ivs_wire_sent() gets the answer. Returns 0, -FI_EAGAIN or another negative error. */
ssize_t ivs_wire_ask(struct ivs_peer *peer);
/* What the buffer held has been sent, or its question answered. */
void ivs_wire_sent(struct core_ep *ce, struct buffer *b);
/* A message has come in the buffer: handles it and those that waited for it, or holds it. Returns how many were handled. */
int ivs_wire_received(struct ivs_ep *ep, struct buffer *b);
/* Handles held messages whose turn has come. Returns how many. */
int ivs_wire_held(struct ivs_ep *ep);
/* Fills in the peer's address in the core provider's AV. Returns false if there is none. */
bool ivs_core_address(struct ivs_peer *peer);

/* Handles what has arrived, as ivs_core_poll() does. */
int ivs_core_read(struct ivs_ep *ep, struct sink *sink);

/* fetch.c: goes on with reads that had no room. Returns how many. */
int ivs_fetch_stalled(struct core_ep *ce);
/* What the core provider says of one. err: 0 or positive. */
void ivs_fetch_done(struct core_ep *ce, struct op *op, int err);
/* At the endpoint's end, when the core provider's is closed. */
void ivs_fetch_free(struct ivs_ep *ep);

/* passthrough.c: makes more of the free ones. Returns false if there is no memory. */
bool ivs_passthrough_more(struct core_ep *ce, bool room);
/* What the core provider says of tagged messages. */
void ivs_passthrough_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e, fi_addr_t src,
			  struct sink *sink);
void ivs_passthrough_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e);
void ivs_passthrough_known(struct core_ep *ce, struct ivs_peer *peer);
void ivs_passthrough_free(struct core_ep *ce);
/* passthrough_plain.c: from now on the endpoint's plain calls take the short way. */
void ivs_passthrough_plain(struct ivs_ep *ep);

static inline struct passthrough *ivs_passthrough_get(struct core_ep *ce, bool room)
{
	struct passthrough *t = ce->ops_free[room];

	if (unlikely(!t)) {
		if (!ivs_passthrough_more(ce, room))
			return NULL;
		t = ce->ops_free[room];
	}
	ce->ops_free[room] = t->next;
	return t;
}

static inline void ivs_passthrough_put(struct core_ep *ce, struct passthrough *t)
{
	t->next = ce->ops_free[t->op.room];
	ce->ops_free[t->op.room] = t;
}

#endif /* IVS_CORE_EP_H */
