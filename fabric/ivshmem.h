/* The provider's objects. */
#ifndef IVS_H
#define IVS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "copy.h"
#include "direct.h"
#include "lib.h"
#include "list.h"
#include "param.h"
#include "past.h"
#include "region.h"

#define IVS_NAME		"ivshmem"
#define IVS_VERSION		FI_VERSION(0, 1)
#define IVS_CORE_ONLY		(1ULL << 59)	/* fi_getinfo: no layers on top */
#define IVS_HIDDEN		(1ULL << 60)	/* fi_getinfo: what FI_PROVIDER hides, too */
#define IVS_ORDER_DATA		(1ULL << 16)	/* FI_ORDER_DATA, deprecated there */
#define IVS_IOV_MAX		4
#define IVS_PIECES_MAX	8	/* of memory that one RMA operation reaches */
#define IVS_INJECT_MAX		4096	/* bytes */
#define IVS_ATOMIC_MAX		4096	/* bytes of operand */
#define IVS_MSG_MAX		((size_t) 1 << 46)
#define IVS_CQ_SIZE		4096
#define IVS_CQ_UNREAD		65536	/* with so many completions unread nothing more is sent */
#define IVS_TX_SIZE		1024
#define IVS_RX_SIZE		4096
#define IVS_MR_BASIC		1	/* libfabric's, deprecated there */
#define IVS_MR_SCALABLE		2
#define IVS_ADDR_FORMAT		(1U << 31)	/* provider specific */

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

/*
 * An endpoint's address, of one length everywhere. kind says which fields count.
 */
struct ivs_addr {
	uint8_t		kind;		/* IVS_ADDR_* */
	uint8_t		inner_len;	/* bytes of inner, 0: no way over the network */
	uint16_t	slot;
	uint32_t	epoch;
	uint64_t	id;		/* of the region, or the hash of a name */
	uint8_t		inner[48];
};

_Static_assert(sizeof(struct ivs_addr) == 64, "MPICH takes no longer ones");

#define IVS_ADDR_SLOT	1	/* a slot of the region id */
#define IVS_ADDR_NAME	2	/* whoever in this region has the name id */
#define IVS_ADDR_INNER	3	/* only the inner address counts */
#define IVS_ADDR_TAGGED	5	/* as that, and tagged messages are sent there as they are */
#define IVS_ADDR_ANY	4	/* whatever the endpoint will get; not of a peer */

/* How many objects use another: threads open and close them at the same time. */
static inline void ivs_ref(int *refs)
{
	__atomic_add_fetch(refs, 1, __ATOMIC_ACQ_REL);
}

static inline void ivs_unref(int *refs)
{
	__atomic_sub_fetch(refs, 1, __ATOMIC_ACQ_REL);
}

static inline bool ivs_refs(const int *refs)
{
	return __atomic_load_n(refs, __ATOMIC_ACQUIRE) != 0;
}

struct ivs_fabric {
	struct fid_fabric fid;
	int refs;
};

struct ivs_domain {
	struct fid_domain fid;
	struct ivs_fabric *fabric;
	struct ivs_region *region;	/* NULL: none on this host */
	struct ivs_inner *inner;	/* NULL: this host only */
	pthread_mutex_t	lock;
	bool		locking;	/* FI_THREAD_SAFE and the like */
	uint64_t	caps;
	int		mr_mode;
	int		refs;
	struct ivs_list	eps;		/* struct ivs_ep.domain_link */
	struct ivs_mr	*mr_shown[NM_LAYOUT_MR_COUNT];
	struct ivs_mr	**mr_hash;
	size_t		mr_count;
	uint64_t	mr_next;	/* next key of FI_MR_PROV_KEY */
	pid_t		pid;		/* of who opened it */
	int		wake;		/* an epoll of what can wake us, -1: nobody has waited */
	uint32_t	sleepers;	/* while there are, senders have to say that they send */
};

static inline void ivs_lock(struct ivs_domain *d)
{
	if (d->locking)
		pthread_mutex_lock(&d->lock);
}

static inline void ivs_unlock(struct ivs_domain *d)
{
	if (d->locking)
		pthread_mutex_unlock(&d->lock);
}

struct ivs_mr {
	struct fid_mr	fid;
	struct ivs_domain *domain;
	struct ivs_mr	*next;		/* in the hash */
	struct iovec	iov[IVS_IOV_MAX];
	size_t		count;
	size_t		len;
	uint64_t	origin;		/* what peers call the first byte */
	uint64_t	access;
	uint64_t	flags;
	struct ivs_cntr	*cntr[2];	/* FI_REMOTE_READ, FI_REMOTE_WRITE */
	int		shown;		/* index in the slots' tables, -1: not there */
};

struct ivs_av {
	struct fid_av	fid;
	struct ivs_domain *domain;
	enum fi_av_type	type;
	int		refs;
	struct ivs_addr	*addr;
	bool		*used;
	size_t		count;		/* entries in use or freed below this */
	size_t		removed;	/* of them */
	size_t		size;
	struct ivs_list	eps;		/* struct ivs_ep.av_link */
};

/* A way to sleep until something may have happened. */
struct ivs_wait {
	int		epoll;		/* -1: none */
	int		timer;
	int		event;
	bool		armed;		/* somebody sleeps, or will: signal what comes */
	uint64_t	since;		/* when this wait began, ns; 0: none has */
	uint64_t	mark;		/* how much had come then */
	uint64_t	nap;		/* the last one, ns */
};

struct ivs_comp {
	void		*context;
	uint64_t	flags;
	size_t		len;
	void		*buf;
	uint64_t	data;
	uint64_t	tag;
	fi_addr_t	src;
	struct ivs_cq_err *err;		/* not NULL: an error */
};

struct ivs_cq_err {
	size_t		olen;
	int		err;
	int		prov_errno;
};

struct ivs_cq {
	struct fid_cq	fid;
	struct ivs_domain *domain;
	int		refs;
	enum fi_cq_format format;
	size_t		entry_bytes;
	enum fi_wait_obj wait_obj;
	struct ivs_comp	*ring;		/* mask + 1 of them */
	size_t		mask;
	size_t		head;		/* next to read */
	size_t		tail;		/* next to write */
	size_t		size;		/* from here on nothing more is received */
	uint32_t	idle;		/* reads in a row that found nothing */
	bool		signaled;
	struct ivs_wait	wait;
};

struct ivs_cntr {
	struct fid_cntr	fid;
	struct ivs_domain *domain;
	int		refs;
	enum fi_wait_obj wait_obj;
	struct ivs_wait	wait;
	uint64_t	value;
	uint64_t	errors;
	uint64_t	seen, seen_errors;	/* as they were last read */
	bool		bytes;		/* FI_CNTR_EVENTS_BYTES */
};

/* A receive that was posted. */
struct ivs_rx {
	struct ivs_rx	*next;
	uint64_t	tag;
	uint64_t	ignore;
	struct ivs_peer	*peer;		/* NULL: from anybody */
	void		*context;
	uint64_t	flags;		/* FI_COMPLETION, FI_MULTI_RECV */
	size_t		len;
	size_t		count;
	struct iovec	iov[IVS_IOV_MAX];
	/* multi-receive */
	size_t		used;		/* bytes given away */
	int		busy;		/* messages still arriving in it */
	bool		done;		/* no more messages fit */
	struct ivs_rx	*parent;	/* the buffer that this message lies in */
};

struct ivs_queue {
	struct ivs_rx	*head;
	struct ivs_rx	**tail;
};

/* A message that has arrived in part, or has no receive yet. */
struct ivs_msg {
	struct ivs_list	link;		/* in the unexpected messages */
	struct ivs_list	stream;		/* in peer->streams */
	struct ivs_peer	*peer;
	struct ivs_rx	*rx;		/* its receive, when known */
	struct ivs_mr	*mr;		/* RMA write: where it goes */
	struct ivs_tx	*result;	/* RMA read or fetch: our request */
	uint8_t		op;		/* IVS_OP_* that began it */
	uint8_t		flags;		/* of its header */
	bool		queued;		/* is unexpected */
	bool		streaming;	/* is in peer->streams */
	bool		asked;		/* clear to send was sent */
	bool		claimed;
	uint32_t	joint;		/* pieces that the sender has taken and not yet told of */
	uint32_t	piece;		/* joint: bytes of one */
	uint32_t	id;		/* the sender's */
	uint64_t	tag;
	uint64_t	data;
	size_t		total;
	size_t		got;
	size_t		held;		/* bytes in buf */
	uint8_t		*buf;
	int		error;
	uint32_t	niov;
	struct iovec	iov[IVS_PIECES_MAX];	/* the sender's memory, or the target's */
};

/* A send, RMA or atomic operation under way. */
struct ivs_tx {
	struct ivs_list	link;		/* in peer->sending or peer->waiting */
	struct ivs_peer	*peer;
	uint32_t	id;
	uint8_t		op;
	bool		queued;		/* is in a list */
	bool		header;		/* the header was sent */
	bool		cleared;	/* clear to send came */
	bool		ack;		/* completes with the receiver's word */
	bool		response;	/* answers a read of a peer's */
	bool		joint;		/* was asked to write a part of it */
	bool		far;		/* its pieces go through far chunks */
	void		*context;
	uint64_t	flags;		/* of the completion; FI_COMPLETION if wanted */
	uint64_t	tag;
	uint64_t	data;
	uint32_t	remote;		/* response: the peer's id */
	size_t		total;
	size_t		sent;
	size_t		count;
	struct iovec	iov[IVS_PIECES_MAX];
	uint8_t		*own;		/* buffer to free at the end */
	uint64_t	begun;		/* PULL: ivs_cycles() when it was shown, 0: is not measured */
	int		error;
};

/* What could not be sent at once: a header without payload. */
struct ivs_ctl {
	struct ivs_ctl	*next;
	uint64_t	tag;
	uint64_t	len;		/* IVS_OP_EVENT: bytes written */
	uint8_t		op;
};

/* Free chunks of one kind (chunk.c), of which there are size from first on. */
struct ivs_chunks {
	uint16_t	*free;		/* a queue: count from next on */
	uint32_t	next, count;
	uint32_t	first, size;
	uint32_t	fresh;		/* that were never taken */
};

enum ivs_channel {
	IVS_CHAN_NONE,		/* not connected yet */
	IVS_CHAN_RING,
	IVS_CHAN_INNER,
	IVS_CHAN_DEAD,
};

struct ivs_peer {
	/* first what every message needs */
	enum ivs_channel channel;
	uint32_t	piece;		/* bytes of payload in one message */
	uint32_t	tx_mask;	/* lines - 1 */
	uint32_t	tx_shift;
	uint32_t	tx_lap0;
	uint8_t		*tx_ring;
	struct nm_ring_ctl *tx_ctl;
	uint64_t	tx_head;
	uint64_t	tx_tail;	/* what we know of the receiver's */
	uint64_t	tx_reaped;	/* chunks were taken back up to here */
	uint16_t	*tx_chunk;	/* by line: chunk + 1 that goes free with it */
	uint8_t		*activity;	/* the receiver's byte for us */

	uint8_t		*rx_ring;
	struct nm_ring_ctl *rx_ctl;
	uint64_t	rx_head;
	uint64_t	rx_shown;	/* tail as the sender knows it */
	uint32_t	rx_lines;	/* of the last message */
	uint32_t	rx_mask;
	uint32_t	rx_shift;
	uint32_t	rx_lap0;
	uint64_t	row_rx, row_tx;	/* rx_head, and tx_head when it last changed */
	bool		hot;
	bool		broken;		/* sent nonsense */
	bool		handling;	/* a message of its is being looked at */
	bool		deaf;		/* we cannot wake it */

	struct ivs_ep	*ep;
	fi_addr_t	fi_addr;	/* FI_ADDR_NOTAVAIL: not in the AV */
	struct ivs_addr	addr;
	uint32_t	slot;		/* NONE: of no slot */
	uint32_t	epoch;
	int		pid;		/* whose memory we can read, or 0 */
	uint8_t		key[16];	/* its secret; pid != 0 */
	bool		self;		/* of this very process */
	bool		looked;		/* pid was determined */
	bool		alone;		/* it cannot write our memory */
	bool		helped;		/* it copied a part of its last message to us */
	uint32_t	joint_gen;	/* of the last message that both copied */
	struct ivs_alive alive;
	uint32_t	used;		/* ep->ticks when something came */
	uint32_t	run;		/* messages in a row, with none from us in between */
	uint64_t	run_head;	/* tx_head when it began */
	uint64_t	await_head;	/* tx_head when we began to wait for an answer (await.h) */
	uint8_t		await_looks;	/* that are left for it */
	uint8_t		await_misses;	/* in a row that did not come meanwhile */
	uint8_t		await_skipped;	/* not waited for, modulo 256 */
	uint64_t	quiet_until;	/* ivs_cycles() before which we do not look */
	struct ivs_list	sending;	/* struct ivs_tx with data to send */
	struct ivs_list	waiting;	/* for a word of the receiver's */
	struct ivs_list	streams;	/* struct ivs_msg under way to us */
	struct ivs_ctl	*ctl_head;
	struct ivs_ctl	**ctl_tail;
	struct ivs_list	active;		/* in ep->active: something to send */
	bool		is_active;
	struct ivs_list	all;		/* in ep->peers_all */
	fi_addr_t	inner_addr;	/* in the inner provider's AV */
	uint64_t	inner_uid;	/* what it calls itself there, 0: not heard of */
	struct ivs_peer	*inner_next;
	uint64_t	direct;		/* copies from or to its memory (CMA) */
	struct ivs_past	past;		/* how pieces for it are copied */
	struct ivs_direct reads;	/* when it reads messages directly */
	uint32_t	inner_sent;	/* messages to it */
	uint32_t	inner_seen;	/* messages from it */
	uint32_t	through_sent;	/* to it, which the inner provider matches */
};

/* Registered memory of a peer's in the region, as its table showed it (target.h). */
struct ivs_target {
	const struct nm_mr *line;	/* of the table; NULL: nothing is here */
	uint32_t	slot, epoch;	/* of the peer whose it is */
	uint64_t	state, key;	/* the line's when it was copied */
	uint64_t	origin, len;	/* bytes; what its owner calls the first one */
	uint8_t		*base;		/* where that is mapped here */
	uint32_t	access;		/* NM_MR_* */
};

#define IVS_TARGETS	8	/* a power of two */

#define IVS_NO_SLOT	UINT32_MAX
#define IVS_NO_BELL	(-2)	/* it cannot be opened */
#define IVS_HOT_MAX	8	/* rings looked at each time */

struct ivs_ep {
	struct fid_ep	fid;
	struct ivs_domain *domain;
	struct ivs_av	*av;
	struct ivs_cq	*tx_cq, *rx_cq;
	struct ivs_cntr	*cntr[4];	/* IVS_CNTR_* */
	struct ivs_cntr	*rma_cntr[2];	/* FI_REMOTE_READ, FI_REMOTE_WRITE */
	struct ivs_list	domain_link, av_link;
	uint64_t	caps;
	uint64_t	tx_flags, rx_flags;	/* default operation flags */
	uint64_t	tx_comp, rx_comp;	/* FI_COMPLETION unless selective */
	uint64_t	msg_order;
	size_t		inject_max;
	size_t		short_max;	/* bytes that the ring takes, beside remote CQ data */
	size_t		min_multi_recv;
	bool		enabled;
	bool		through;	/* the inner provider receives tagged messages */
	struct ivs_addr	addr;
	struct ivs_addr	want;		/* address asked for, kind 0: any */
	uint32_t	slot, epoch;

	struct ivs_peer	**peers;	/* by fi_addr; NULL: not looked up yet */
	size_t		peers_size;
	struct ivs_peer	**by_slot;
	struct ivs_list	peers_all;
	struct ivs_list	active;
	struct ivs_peer	*hot[IVS_HOT_MAX];
	int		hot_count;
	uint32_t	turn;		/* next slot to look at in turn */
	uint32_t	ticks;
	uint64_t	checked_ms;
	uint64_t	attached;	/* senders */
	struct nm_slot	*me;

	struct ivs_queue tagged, msg;
	struct ivs_list	ux_tagged, ux_msg, claimed;
	size_t		ux_bytes;
	struct ivs_rx	*rx_free, *rx_blocks;
	struct ivs_list	tx_free_list;
	struct ivs_tx	**tx_table;	/* by the low 16 bits of the id */
	size_t		tx_used;
	uint32_t	*tx_free_ids;
	size_t		tx_free_count;
	size_t		tx_table_size;
	uint32_t	tx_gen;

	uint8_t		*area;
	struct ivs_chunks near, far;	/* chunk.c */
	struct ivs_heap	*heap;		/* what is left of the area; NULL: there is no region */
	struct ivs_ring_free *ring_free;	/* rings of peers that are gone */
	struct ivs_cq	*sink;		/* for what has no queue */
	struct ivs_target targets[IVS_TARGETS];
	void		*inner;		/* inner.c's */
	int		bell;		/* what neighbours ring while we sleep, -1: not open yet */
};

enum { IVS_CNTR_SEND, IVS_CNTR_RECV, IVS_CNTR_READ, IVS_CNTR_WRITE };

/* prov.c, info.c, fabric.c, domain.c, eq.c, poll.c */
int ivs_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		const struct fi_info *hints, struct fi_info **info);
int ivs_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int ivs_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **domain, void *context);
int ivs_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
		void *context);
int ivs_eq_trywait(struct fid *fid);
int ivs_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		  struct fid_poll **poll);
int ivs_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
		void *context);
int ivs_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op,
		     struct fi_atomic_attr *attr, uint64_t flags);

/* What an object does not offer: -FI_ENOSYS. */
int ivs_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int ivs_no_control(struct fid *fid, int command, void *arg);
int ivs_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops,
		    void *context);

/* info.c: the address of whoever has this service name. */
void ivs_name_addr(struct ivs_addr *addr, const char *service);

/* mr.c */
extern struct fi_ops_mr ivs_mr_ops;
/* Does registered memory with all of this access hold each of the pieces? */
bool ivs_mr_covers(const struct ivs_domain *domain, const struct iovec *iov, size_t count,
		   uint64_t access);
/* The region under key that holds [addr, addr + len) with access, or NULL. */
struct ivs_mr *ivs_mr_find(struct ivs_domain *domain, uint64_t key, uint64_t addr,
			   size_t len, uint64_t access);
/* Turns a checked piece of mr into pieces of memory; gives how many, 0: too many. */
size_t ivs_mr_pieces(const struct ivs_mr *mr, uint64_t addr, size_t len,
		     struct iovec *iov, size_t max);

/* What makes a line of a slot's table its owner's: key is the owner's, 16 bytes. */
uint64_t ivs_mr_check(const uint8_t *key, const struct nm_mr *m, uint32_t slot, uint32_t epoch);
/* Copies a line that its owner may be changing. Gives its state before the copy. */
uint64_t ivs_mr_copy(const struct nm_mr *from, struct nm_mr *to);

/* Shows all the domain's memory regions to the endpoint's peers. */
void ivs_mr_show_all(struct ivs_ep *ep);

/* av.c */
int ivs_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
		void *context);

/* cq.c */
int ivs_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
		void *context);
void ivs_cq_grow(struct ivs_cq *cq);
void ivs_cq_wake(struct ivs_cq *cq);
bool ivs_cq_quiet(void *cq, uint64_t *mark);	/* ivs_quiet_fn */
void ivs_cq_error(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf,
		  uint64_t data, uint64_t tag, size_t olen, int err);

/* What is in the queue. -FI_EAGAIN: nothing. */
ssize_t ivs_cq_drain(struct ivs_cq *cq, void *buf, size_t count, fi_addr_t *src);
/* After idle reads in a row that found nothing, IVS_YIELD_AFTER at least: gives the CPU away now and then. */
void ivs_cq_yield(uint32_t idle);
#define IVS_YIELD_AFTER	1024

/* An entry of the queue's format at buf. */
static inline void ivs_cq_fill(const struct ivs_cq *cq, void *buf, void *context, uint64_t flags,
			       size_t len, void *at, uint64_t data, uint64_t tag)
{
	struct fi_cq_tagged_entry *e = buf;

	e->op_context = context;
	if (unlikely(cq->format == FI_CQ_FORMAT_CONTEXT))
		return;
	e->flags = flags;
	e->len = len;
	if (likely(cq->format == FI_CQ_FORMAT_TAGGED))
		e->tag = tag;
	else if (cq->format == FI_CQ_FORMAT_MSG)
		return;
	e->buf = at;
	e->data = data;
}

/* Counts reads that found nothing in a row, of which ret is the last; the domain is locked. */
static inline uint32_t ivs_cq_idle(struct ivs_cq *cq, ssize_t ret)
{
	cq->idle = ret == -FI_EAGAIN ? cq->idle + 1 : 0;
	return cq->idle;
}

static inline size_t ivs_cq_count(const struct ivs_cq *cq)
{
	return cq->tail - cq->head;
}

static inline void ivs_cq_add(struct ivs_cq *cq, void *context, uint64_t flags, size_t len,
			      void *buf, uint64_t data, uint64_t tag, fi_addr_t src)
{
	struct ivs_comp *c;

	if (unlikely(cq->tail - cq->head > cq->mask))
		ivs_cq_grow(cq);
	c = &cq->ring[cq->tail & cq->mask];
	c->context = context;
	c->flags = flags;
	c->len = len;
	c->buf = buf;
	c->data = data;
	c->tag = tag;
	c->src = src;
	c->err = NULL;
	cq->tail++;
	if (unlikely(cq->wait.armed))
		ivs_cq_wake(cq);
}

/* wait.c */
/* Opens a wait; domain: what may wake it, or NULL if only ivs_wait_signal() does. */
int ivs_wait_open(struct ivs_domain *domain, struct ivs_wait *wait);
void ivs_wait_close(struct ivs_wait *wait);
/* Makes the wait's descriptor readable, or takes that back. */
void ivs_wait_signal(struct ivs_wait *wait);
void ivs_wait_clear(struct ivs_wait *wait);
/* Has nothing come for arg? Then *mark is how much has come so far. Under the lock. */
typedef bool ivs_quiet_fn(void *arg, uint64_t *mark);
/*
 * Before sleeping, under the domain's lock: shows that we do, and looks once more. Gives
 * for how many ns at most, 0: something has come.
 */
uint64_t ivs_wait_arm(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet,
		      void *arg);
/* Makes the descriptor readable in ns. */
void ivs_wait_timer(struct ivs_wait *wait, uint64_t ns);
/* The time at which timeout ms from now are over; -1: never. */
uint64_t ivs_deadline(int timeout);
/* One more look before sleeping? *over: the deadline is. */
bool ivs_wait_spin(uint64_t deadline, unsigned int *round, bool *over);
/* Sleeps until the wait is signaled, or ns or the deadline are over: then it gives false. */
bool ivs_wait_block(struct ivs_wait *wait, uint64_t ns, uint64_t deadline);
/* Sleeps, not under the lock, until something may have come. false: the deadline is over. */
bool ivs_wait_sleep(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet,
		    void *arg, uint64_t deadline);

/* report.c */
void ivs_report_use(struct ivs_ep *ep);

/* cntr.c */
int ivs_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		  struct fid_cntr **cntr, void *context);
void ivs_cntr_wake(struct ivs_cntr *cntr);
bool ivs_cntr_quiet(void *cntr, uint64_t *mark);	/* ivs_quiet_fn: since it was read */

static inline void ivs_cntr_inc(struct ivs_cntr *cntr, size_t bytes)
{
	if (likely(!cntr))
		return;
	__atomic_store_n(&cntr->value, cntr->value + (cntr->bytes ? bytes : 1),
			 __ATOMIC_RELEASE);
	if (unlikely(cntr->wait.armed))
		ivs_cntr_wake(cntr);
}

static inline void ivs_cntr_fail(struct ivs_cntr *cntr)
{
	if (!cntr)
		return;
	__atomic_store_n(&cntr->errors, cntr->errors + 1, __ATOMIC_RELEASE);
	if (unlikely(cntr->wait.armed))
		ivs_cntr_wake(cntr);
}

/*
 * receive.c: ends what peers are doing to the memory of mr, which is closed, with an error for them;
 * unless other regions hold the memory, too: an MPI registers a buffer once for each who reads it.
 */
void ivs_stop_access(struct ivs_domain *domain, const struct ivs_mr *mr);

/* peer.c */
struct ivs_peer *ivs_peer_lookup(struct ivs_ep *ep, fi_addr_t addr, int *err);
int ivs_peer_connect(struct ivs_peer *peer);

/* The connected peer at addr; NULL and *err if there is none, -FI_EAGAIN: not yet. */
static inline struct ivs_peer *ivs_peer_get(struct ivs_ep *ep, fi_addr_t addr, int *err)
{
	struct ivs_peer *p;

	if (likely(addr < ep->peers_size && (p = ep->peers[addr]) &&
		   (p->channel == IVS_CHAN_RING || p->channel == IVS_CHAN_INNER)))
		return p;
	p = ivs_peer_lookup(ep, addr, err);
	if (!p)
		return NULL;
	if (p->channel == IVS_CHAN_DEAD) {
		*err = -FI_EIO;
		return NULL;
	}
	if (p->channel == IVS_CHAN_NONE) {
		*err = ivs_peer_connect(p);
		if (*err)
			return NULL;
	}
	return p;
}

struct ivs_peer *ivs_peer_by_slot(struct ivs_ep *ep, uint32_t slot, uint32_t epoch);
/* The peer with this address, made if it is not known. */
struct ivs_peer *ivs_peer_by_addr(struct ivs_ep *ep, const struct ivs_addr *addr);
void ivs_peer_dead(struct ivs_peer *peer, int err);
void ivs_peer_inserted(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_removed(struct ivs_ep *ep, fi_addr_t addr);
void ivs_peer_free(struct ivs_peer *peer);
void ivs_peer_locate(struct ivs_peer *peer);
/* Looks now and then whether those who owe us something still live. */
void ivs_peer_check(struct ivs_ep *ep);

/* progress.c */
void ivs_ep_progress(struct ivs_ep *ep);
/* Before sleeping: senders have to tell us from now on; then a look at everybody. */
void ivs_ep_cool(struct ivs_ep *ep);
void ivs_ep_look(struct ivs_ep *ep);
void ivs_domain_progress(struct ivs_domain *domain);

/* msg.c, tagged.c, rma.c, atomic.c */
extern struct fi_ops_msg ivs_msg_ops;
extern struct fi_ops_tagged ivs_tagged_ops;
extern struct fi_ops_rma ivs_rma_ops;
extern struct fi_ops_atomic ivs_atomic_ops;

#endif /* IVS_H */
