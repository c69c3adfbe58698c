/* An endpoint's part of the core provider, which the files of this directory share. */
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
	struct fid_domain *spare; /* opened as a test; the next endpoint uses it */
	bool tagged;		  /* it can match an application's tagged messages */
	bool reads;		  /* it reads a peer's memory (fetch.h) */
	bool injects;		  /* short messages are sent without a completion: send_wire() of wire.c */
};

/* The head of a message on the wire, before the fixed part and the payload. */
struct wire {
	uint64_t uid; /* of the sending endpoint, random */
	uint64_t tag;
	uint8_t op; /* IVS_OP_*, or OP_HELLO */
	uint8_t flags;
	uint16_t fixed_len;
	uint32_t len;  /* bytes of payload */
	uint32_t seq;  /* number of the message: a large one may arrive after the next small one */
	uint32_t seen; /* messages from the receiver that the sender has handled */
};

#define OP_HELLO 255 /* the payload is the sender's struct ivs_addr */

/* An operation of this provider in the core provider. Its completion points to it. */
struct op {
	struct fi_context2 context; /* must be first: completions point to it */
	uint8_t kind;		    /* OP_* */
	/* for a struct passthrough, in its second line */
	bool wanted; /* its completion is wanted */
	bool room;   /* has data */
	bool claims;
	uint16_t err; /* reason of its cancellation */
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
 * A tagged message that the core provider matches: one line for that provider, one for this one. System calls in
 * between replace most of the first-level cache, so that each line counts.
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

/* A peer whose core provider matches tagged messages; by the application's address. */
struct passthrough_to {
	fi_addr_t addr;	       /* its address in the core provider */
	struct ivs_peer *peer; /* NULL: not found yet, or removed */
	uint64_t sent;	       /* messages to it that peer->core.passthrough_sent does not count yet */
	bool ready;	       /* this rank was announced to it: messages may be sent */
};

/* The reader of a queue. Completions are passed to it directly while the queue is empty. */
struct sink {
	struct ivs_cq *cq; /* NULL: none */
	char *out;
	fi_addr_t *src;	    /* NULL: not wanted */
	size_t room, count; /* completions */
};

struct buffer {
	struct op op;
	struct buffer *next;
	struct ivs_peer *peer; /* its receiver */
	uint32_t upto;	       /* OP_ASKED: value of peer->core.sent at that time */
	uint32_t got;
	uint8_t data[sizeof(struct wire) + IVS_INLINE_MAX + PIECE];
};

struct core_ep {
	/* the fields that every message needs come first */
	struct fid_ep *ep;
	struct fid_cq *cq;
	size_t inject; /* bytes that it copies at once */
	struct passthrough_to *to;
	size_t to_size;
	struct passthrough *ops_free[2]; /* without and with room for data */
	size_t sending;			 /* operations that have not completed */
	struct ivs_list receives;	 /* struct passthrough: posted, not completed */
	struct buffer *held;		 /* messages that arrived out of order, or without room */
	struct ivs_list stalled;	 /* reads that wait for room (fetch.c) */
	bool sources;			 /* the source of a message has to be reported */
	struct fi_ops_tagged tagged;	 /* the calls of passthrough_plain.c */
	struct fi_ops_tagged *general;	 /* the endpoint's own, for all other calls; NULL: tagged is not in use */

	struct ivs_core *core;
	const struct ivs_core_ops *ops; /* functions for received messages */
	size_t gathers;			/* most bytes of a message sent from two places: send_gathered(); 0: none */
	struct fid_domain *domain;	/* of this endpoint only: take_domain() */
	struct fid_av *av;
	struct fid_mr *mr;
	int wait_fd; /* readable when cq has an entry, -1: none */
	struct buffer *buffers;
	struct buffer *free; /* for sending */
	struct ivs_peer *by_uid[IVS_CORE_CHAINS];
	uint64_t uid;
	uint32_t ticks;	     /* calls that might have polled it */
	uint32_t came;	     /* ticks when a message arrived */
	uint32_t held_count; /* in held */
	bool busy;
	struct ivs_list fetches; /* reads in progress (fetch.c) */
	struct ivs_numbers keys; /* keys of memory that peers may read (ivs_core_show()) */
	/* fields of passthrough.c */
	struct passthrough *ops_all;
	struct ivs_peer **known; /* by the core provider's address */
	size_t known_size;
};

/* Posts the buffer for receiving a message (wire.c). Returns 0 or a negative error. */
int ivs_wire_post(struct core_ep *ce, struct buffer *b);
/*
 * Asks whether all messages to the peer have arrived; ivs_wire_sent() gets the answer. Returns 0, -FI_EAGAIN or another
 * negative error.
 */
ssize_t ivs_wire_ask(struct ivs_peer *peer);
/* Frees a buffer whose message was sent, or whose question was answered. */
void ivs_wire_sent(struct core_ep *ce, struct buffer *b);
/*
 * Handles the message that has arrived in the buffer and those that waited for it, or holds it. Returns the number
 * handled.
 */
int ivs_wire_received(struct ivs_ep *ep, struct buffer *b);
/* Handles held messages that are next in order. Returns their number. */
int ivs_wire_held(struct ivs_ep *ep);
/* Inserts the peer's address into the core provider's AV. Returns false if that is impossible. */
bool ivs_core_address(struct ivs_peer *peer);

/* Handles messages that have arrived, as ivs_core_poll() does. Returns their number. */
int ivs_core_read(struct ivs_ep *ep, struct sink *sink);

/* Posts reads that have waited for room (fetch.c). Returns their number. */
int ivs_fetch_stalled(struct core_ep *ce);
/* Handles the core provider's completion of a read. err: 0 or positive. */
void ivs_fetch_done(struct core_ep *ce, struct op *op, int err);
/* Frees all reads when the endpoint closes, after the core provider's. */
void ivs_fetch_free(struct ivs_ep *ep);

/* Allocates more requests (passthrough.c). Returns false without memory. */
bool ivs_passthrough_more(struct core_ep *ce, bool room);
/* Handle the core provider's completions of tagged messages. */
void ivs_passthrough_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e, fi_addr_t src,
			  struct sink *sink);
void ivs_passthrough_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e);
void ivs_passthrough_known(struct core_ep *ce, struct ivs_peer *peer);
void ivs_passthrough_free(struct core_ep *ce);
/* Replaces the endpoint's plain calls by the short path (passthrough_plain.c). */
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
