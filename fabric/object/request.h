/* Receives, messages and sends in progress. */
#ifndef IVS_REQUEST_H
#define IVS_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <rdma/fi_domain.h>

#include "base/common.h"
#include "base/limits.h"
#include "base/list.h"

struct fetch;
struct ivs_mr;
struct ivs_peer;

/* A posted receive. */
struct ivs_rx {
	struct ivs_rx *next;
	uint64_t tag;
	uint64_t ignore;
	struct ivs_peer *peer; /* NULL: from any peer */
	void *context;
	uint64_t flags; /* FI_COMPLETION, FI_MULTI_RECV */
	size_t len;
	size_t count;
	struct iovec iov[IVS_IOV_MAX];
	/* fields of a multi-receive */
	size_t used;	       /* bytes assigned to messages */
	int busy;	       /* messages still arriving in it */
	bool done;	       /* no more messages fit */
	struct ivs_rx *parent; /* the buffer that contains this message */
};

/* Matching and completing a receive need one line, before its first piece of memory. */
IVS_IN_LINE(struct ivs_rx, tag, 0);
IVS_IN_LINE(struct ivs_rx, peer, 0);
IVS_IN_LINE(struct ivs_rx, flags, 0);
IVS_IN_LINE(struct ivs_rx, len, 0);
IVS_IN_LINE(struct ivs_rx, count, 0);
IVS_IN_LINE(struct ivs_rx, iov, 1);

struct ivs_queue {
	struct ivs_rx *head;
	struct ivs_rx **tail;
};

/* A message that has arrived in part, or has no receive yet. */
struct ivs_msg {
	struct ivs_list link;	/* in the list of unexpected messages */
	struct ivs_list stream; /* in its peer's list of streams */
	struct ivs_peer *peer;
	struct ivs_rx *rx;     /* its receive, once known */
	struct ivs_mr *mr;     /* RMA write: the target */
	struct ivs_tx *result; /* RMA read or fetch: our request */
	uint8_t op;	       /* IVS_OP_* that began it */
	uint8_t flags;	       /* of its header */
	bool queued;	       /* in the list of unexpected messages */
	bool streaming;	       /* in its peer's list of streams */
	bool asked;	       /* clear to send was sent */
	bool claimed;
	uint32_t coop;	 /* pieces that the receiver has not claimed and the sender may have */
	uint32_t piece;	 /* coop: bytes per piece */
	uint32_t id;	 /* the sender's */
	uint64_t number; /* RTS: its number in the sender's ledger (proto/shown.h), or 0; with IVS_F_CORE the key */
	uint64_t tag;
	uint64_t data;
	size_t total;
	size_t got;
	size_t held;	/* bytes that fit in buf */
	size_t charged; /* bytes charged to the endpoint's ux_bytes and the peer's held */
	uint8_t *buf;
	struct fetch *fetch; /* not NULL: being read through the core provider (remote/fetch.h) */
	int error;
	uint32_t niov;
	struct iovec iov[IVS_PIECES_MAX]; /* the sender's memory, or the target's */
};

/* A send, RMA or atomic operation in progress. */
struct ivs_tx {
	struct ivs_list link; /* in its peer's list of sending or waiting operations */
	struct ivs_peer *peer;
	uint32_t id;
	uint8_t op;
	bool queued;   /* in a list */
	bool header;   /* the header was sent */
	bool cts;      /* clear to send has arrived */
	bool ack;      /* completes with the receiver's ACK */
	bool response; /* answers a peer's read */
	bool coop;     /* the receiver asked this rank to copy a part */
	bool shown;    /* its receiver may read it from this process's memory (proto/shown.h) */
	uint8_t open;  /* IVS_OPEN_*: counted in its peer's open_out, or open_in of a response */
	void *context;
	uint64_t flags; /* of the completion; FI_COMPLETION if wanted */
	uint64_t tag;
	uint64_t data;
	uint32_t remote; /* response: the peer's id */
	size_t total;
	size_t sent;
	size_t count;
	struct iovec iov[IVS_PIECES_MAX];
	uint8_t *own;		/* buffer to free at the end */
	struct fid_mr *core_mr; /* RTS: its receiver reads it through the core provider (remote/fetch.h) */
	uint64_t begun;		/* RTS: ivs_cycles() when it was shown, 0: not measured */
	int error;
};

/* A header without payload that could not be sent at once. */
struct ivs_ctl {
	struct ivs_ctl *next;
	uint64_t tag;
	uint64_t len; /* IVS_OP_EVENT: bytes written */
	uint8_t op;
};

/*
 * Operations that use memory of the target until they end. A rank may have at most IVS_OPEN_MAX of each kind at another
 * rank at a time. A rank that exceeds the limit is ignored from then on.
 */
enum ivs_open {
	IVS_OPEN_NONE,
	IVS_OPEN_WRITE, /* a write of several pieces */
	IVS_OPEN_READ,	/* a read, or an atomic operation with a result */
	IVS_OPEN_KINDS
};
#define IVS_OPEN_MAX 1024

/*
 * The most control messages that may wait for room in a peer's ring. Each of the IVS_TX_MAX operations that a peer can
 * have in progress causes at most three.
 */
#define IVS_TX_MAX  65536
#define IVS_CTL_MAX (4 * IVS_TX_MAX)

#endif /* IVS_REQUEST_H */
