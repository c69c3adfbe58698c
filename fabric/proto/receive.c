/* Checks, matches and receives messages that have arrived. */
#include "proto/cma_policy.h"
#include "proto/coop_copy.h"
#include "proto/select.h"
#include "proto/shown.h"
#include "proto/traffic.h"
#include "remote/fetch.h"
#include "ring/copy.h"

/*
 * Bytes of one message before its receive: not a tuning constant, but the limit for a sender that ignores its window.
 */
#define HELD_MAX ((size_t) 1 << 20)
_Static_assert(IVS_WINDOW_MAX + NM_LAYOUT_BOUNCE_LARGEST <= HELD_MAX, "a sender within its window is believed");

static struct ivs_msg *new_msg(struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag)
{
	struct ivs_msg *msg = calloc(1, sizeof(*msg));

	if (!msg)
		return NULL;
	msg->peer = peer;
	msg->op = op;
	msg->flags = flags;
	msg->tag = tag;
	ivs_list_init(&msg->link);
	ivs_list_init(&msg->stream);
	return msg;
}

static void nonsense(struct ivs_peer *p, const char *what)
{
	IVS_WARN(FI_LOG_EP_DATA, "a rank sent %s; its messages are ignored from now on\n", what);
	p->broken = true;
	ivs_peer_condemn(p);
}

/* Returns the bytes of a message that may arrive before its receive is known. */
static size_t reserve(const struct ivs_msg *msg)
{
	return msg->total < ivs_param.window ? msg->total : ivs_param.window;
}

/* Counts the memory of a message without a receive, bytes in total. */
static void charge(struct ivs_ep *ep, struct ivs_msg *msg, size_t bytes)
{
	if (bytes > msg->charged) {
		ep->proto.ux_bytes += bytes - msg->charged;
		*msg->peer->proto.held += bytes - msg->charged;
		msg->charged = bytes;
	}
}

/*
 * Returns true if another of the peer's messages may be held without a receive. One half of the limit is for the first
 * that arrive. Of the other half each slot has an equal share, so that a peer that sends without end stops only itself.
 */
static bool may_hold(const struct ivs_ep *ep, const struct ivs_peer *peer)
{
	const struct ivs_region *r = ep->domain->region;
	size_t half = ivs_param.unexpected / 2;

	return ep->proto.ux_bytes <= half ||
	       *peer->proto.held <= half / ((r ? r->geo.slots : 0) + ep->proto.core_peers);
}

/* Stores bytes of a message that has no receive yet. Returns false without memory. */
static bool hold(struct ivs_ep *ep, struct ivs_msg *msg, const uint8_t *payload, size_t len)
{
	uint8_t *buf;
	size_t need = msg->got + len;

	if (need > msg->held) {
		size_t grow = reserve(msg);

		if (grow < need)
			grow = need;
		buf = realloc(msg->buf, grow ? grow : 1);
		if (!buf)
			return false;
		msg->buf = buf;
		msg->held = grow;
		charge(ep, msg, sizeof(*msg) + grow);
	}
	ivs_copy(msg->buf + msg->got, payload, len);
	msg->got += len;
	return true;
}

/* A message, or its start, as described by its head. */
struct start {
	uint8_t op, flags;
	bool tagged;
	uint32_t id; /* the sender's; with IVS_F_ACK, and for all but whole messages */
	uint64_t tag, data;
	size_t total;
	const uint8_t *payload; /* the first len bytes */
	size_t len;
	uint64_t number; /* RTS: its number in the sender's ledger (proto/shown.h) */
	size_t niov;	 /* RTS: pieces in iov; 0: their place is not known here */
	struct iovec iov[IVS_IOV_MAX];
};

/*
 * Reads the head of an RTS for the core provider, which checks the place against the sender's registration. Returns the
 * fault, or NULL.
 */
static const char *parse_core_rts(const struct ivs_peer *peer, struct start *s, const void *fixed)
{
	struct ivs_core_rts where;

	memcpy(&where, fixed, sizeof(where));
	s->total = where.total;
	s->data = where.data;
	s->id = where.id;
	s->number = where.key;
	s->niov = 1;
	s->iov[0].iov_base = (void *) (uintptr_t) where.addr;
	s->iov[0].iov_len = where.total;
	return s->total > IVS_MSG_MAX || s->len || peer->slot != IVS_NO_SLOT ? "a message of a wrong kind" : NULL;
}

/* Reads the head of an RTS and the place of its message. Returns the fault, or NULL. */
static const char *parse_rts(struct ivs_peer *peer, struct start *s, const void *fixed)
{
	const struct ivs_region *r = peer->ep->domain->region;
	struct ivs_rendezvous_read where;
	size_t i;
	int count;

	memcpy(&where, fixed, IVS_RTS_SHOWN_BYTES);
	s->total = where.total;
	s->data = where.data;
	s->id = where.id;
	if (where.count > (s->flags & IVS_F_REGION ? IVS_IOV_MAX : 0) || s->total > IVS_MSG_MAX || s->len)
		return "a message of a wrong kind";
	if (!(s->flags & IVS_F_REGION)) {
		/* The head may be another VM's: the pieces are read from the sender's ledger. */
		count = ivs_shown_find(peer, s->id, s->total, s->iov, &s->number);
		s->niov = count > 0 ? (size_t) count : 0;
		return count < 0 ? "a message that it does not show us" : NULL;
	}
	memcpy(where.iov, (const char *) fixed + IVS_RTS_SHOWN_BYTES, sizeof(where.iov));
	s->niov = where.count;
	for (i = 0; i < s->niov; i++) {
		uint64_t addr = where.iov[i].addr, len = where.iov[i].len;

		if (len > IVS_MSG_MAX || !r || addr > r->header.size_bytes || len > r->header.size_bytes - addr)
			return "a message outside the region";
		s->iov[i].iov_base = (void *) (uintptr_t) addr;
		s->iov[i].iov_len = len;
	}
	return NULL;
}

/* Reads the head of a message or of its start. Returns the fault, or NULL. */
static const char *parse(struct ivs_peer *peer, struct start *s, const void *fixed)
{
	struct ivs_long head;
	uint64_t id;

	switch (s->op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG:
		s->total = s->len;
		if (s->flags & IVS_F_DATA)
			memcpy(&s->data, fixed, 8);
		if (s->flags & IVS_F_ACK) {
			memcpy(&id, (const char *) fixed + (s->flags & IVS_F_DATA ? 8 : 0), 8);
			s->id = (uint32_t) id;
		}
		return NULL;
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG:
		memcpy(&head, fixed, sizeof(head));
		s->total = head.total;
		s->data = head.data;
		s->id = head.id;
		/* A complete message is sent as such: no piece would arrive to complete this one. */
		return s->total <= s->len || s->total > IVS_MSG_MAX ? "a message of a wrong length" : NULL;
	default: return s->flags & IVS_F_CORE ? parse_core_rts(peer, s, fixed) : parse_rts(peer, s, fixed);
	}
}

static bool is_rts(const struct start *s)
{
	return s->op == IVS_OP_TAGGED_RTS || s->op == IVS_OP_MSG_RTS;
}

/* Copies the bytes that came with the start into its receive. */
static void place(const struct start *s, const struct ivs_rx *rx)
{
	ivs_iov_scatter(rx->iov, rx->count, 0, s->payload, s->len < rx->len ? s->len : rx->len);
}

/* Completes a message at once if all of it is here or can be read from its sender. Returns false if not. */
static bool complete(struct ivs_ep *ep, struct ivs_peer *peer, const struct start *s, struct ivs_rx *rx)
{
	size_t want = s->total < rx->len ? s->total : rx->len;

	if (s->op <= IVS_OP_MSG) {
		place(s, rx);
		if (s->flags & IVS_F_ACK)
			ivs_ctl_send(peer, IVS_OP_ACK, s->id);
	} else if (s->niov && ivs_select_read(peer, s->flags, s->niov, rx, want) == IVS_READ_CMA &&
		   !ivs_cma(peer, false, rx->iov, rx->count, s->iov, s->niov, want) &&
		   ivs_shown_holds(peer, s->id, s->number)) {
		ivs_ctl_send(peer, IVS_OP_SHOWN_ACK, ivs_shown_answer(peer, IVS_OP_SHOWN_ACK, s->id, s->number));
	} else {
		return false;
	}
	ivs_rx_complete(ep, rx, s->tagged, peer, s->total, s->tag, s->flags & IVS_F_DATA, s->data, 0);
	return true;
}

/* Allocates the record of a message that has more to come. Returns NULL without memory. */
static struct ivs_msg *record(struct ivs_peer *peer, const struct start *s)
{
	struct ivs_msg *msg = new_msg(peer, s->op, s->flags, s->tag);

	if (!msg)
		return NULL;
	msg->total = s->total;
	msg->data = s->data;
	msg->id = s->id;
	if (is_rts(s)) {
		msg->number = s->number;
		/* In the sender's memory it is searched again once its receive is known. */
		msg->niov = (uint32_t) s->niov;
		memcpy(msg->iov, s->iov, s->niov * sizeof(*s->iov));
		/* Nothing was sent yet: after a CTS the whole message is sent. */
		msg->flags |= IVS_F_ACK;
	} else if (s->total > s->len) {
		msg->streaming = true;
		ivs_list_add(&peer->proto.streams, &msg->stream);
	}
	return msg;
}

/* Begins to receive a message whose receive is known. */
static void begin(struct ivs_ep *ep, struct ivs_msg *msg, const struct start *s, struct ivs_rx *rx)
{
	if (is_rts(s)) {
		ivs_msg_attach(ep, msg, rx);
		return;
	}
	/* Not by ivs_msg_attach(): the first bytes are already in place. */
	place(s, rx);
	msg->rx = rx;
	msg->got = s->len;
	if (msg->flags & IVS_F_CTS) {
		msg->asked = true;
		ivs_ctl_send(msg->peer, IVS_OP_CTS, msg->id);
	}
}

/* Keeps a message until its receive is posted. Returns false without memory, after freeing it. */
static bool keep(struct ivs_ep *ep, struct ivs_msg *msg, const struct start *s)
{
	size_t more = s->op == IVS_OP_TAGGED_LONG || s->op == IVS_OP_MSG_LONG ? reserve(msg) : 0;

	if (s->len && !hold(ep, msg, s->payload, s->len)) {
		ivs_msg_free(ep, msg);
		return false;
	}
	/* A short message uses more memory than its bytes; the other pieces of a long one will follow. */
	charge(ep, msg, sizeof(*msg) + more);
	msg->queued = true;
	ivs_list_add(s->tagged ? &ep->ux_tagged : &ep->ux_msg, &msg->link);
	return true;
}

/* Handles a message or its start. Returns false if no buffer is free. */
static bool start(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
		  const uint8_t *payload, size_t len)
{
	const char *fault;
	struct ivs_msg *msg;
	struct ivs_rx *rx;
	struct start s;

	/* iov is not set, because short messages also pass here. */
	s.op = op;
	s.flags = flags;
	s.tagged = op == IVS_OP_TAGGED || op == IVS_OP_TAGGED_LONG || op == IVS_OP_TAGGED_RTS;
	s.id = 0;
	s.tag = tag;
	s.data = 0;
	s.payload = payload;
	s.len = len;
	s.number = 0;
	s.niov = 0;
	fault = parse(peer, &s, fixed);
	if (fault) {
		nonsense(peer, fault);
		return true;
	}
	rx = ivs_match_posted(ep, s.tagged ? &ep->tagged : &ep->msg, s.tagged, peer, s.tag, s.total);
	if (rx && complete(ep, peer, &s, rx))
		return true;
	if (!rx && !may_hold(ep, peer))
		return false;
	msg = record(peer, &s);
	if (!msg) {
		if (rx)
			ivs_rx_complete(ep, rx, s.tagged, peer, s.total, s.tag, false, 0, FI_ENOMEM);
		return rx != NULL;
	}
	if (!rx)
		return keep(ep, msg, &s);
	begin(ep, msg, &s, rx);
	return true;
}

static void ack(struct ivs_peer *peer, uint32_t id, int err)
{
	ivs_ctl_send(peer, IVS_OP_ACK, (uint64_t) (uint32_t) err << 32 | id);
}

/* Reports a peer's completed write or atomic operation. */
static void target_event(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_mr *mr, bool has_data, uint64_t data,
			 size_t len, uint64_t flags)
{
	int dir = flags & FI_REMOTE_READ ? 0 : 1;

	if (has_data)
		ivs_cq_add(ep->rx_cq, NULL, flags | FI_REMOTE_CQ_DATA, len, NULL, data, 0, peer->fi_addr);
	ivs_cntr_inc(ep->rma_cntr[dir], len);
	if (mr && mr->cntr[dir] != ep->rma_cntr[dir])
		ivs_cntr_inc(mr->cntr[dir], len);
}

/* Checks the memory that a peer wants to reach. Returns 0 and its pieces in iov, or a negative error. */
static int target_pieces(struct ivs_ep *ep, const struct ivs_rma *rma, uint64_t access, struct iovec *iov,
			 uint32_t *count, struct ivs_mr **first)
{
	size_t i, n = 0, sum = 0, k;

	*first = NULL;

	if (rma->count > IVS_IOV_MAX || rma->total > IVS_MSG_MAX)
		return -FI_EINVAL;
	for (i = 0; i < rma->count; i++) {
		struct ivs_mr *mr = ivs_mr_find(ep->domain, rma->rma[i].key, rma->rma[i].addr, rma->rma[i].len, access);

		if (!mr)
			return -FI_EKEYREJECTED;
		if (!i)
			*first = mr;
		if (rma->rma[i].len > IVS_MSG_MAX)
			return -FI_EINVAL;
		if (!rma->rma[i].len)
			continue;
		k = ivs_mr_pieces(mr, rma->rma[i].addr, rma->rma[i].len, iov + n, IVS_PIECES_MAX - n);
		if (!k)
			return -FI_EMSGSIZE;
		n += k;
		sum += rma->rma[i].len;
	}
	if (sum != rma->total)
		return -FI_EINVAL;
	*count = (uint32_t) n;
	return 0;
}

static bool rma_write(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t flags, const void *fixed,
		      const uint8_t *payload, size_t len)
{
	struct iovec iov[IVS_PIECES_MAX];
	struct ivs_rma rma;
	struct ivs_msg *msg;
	struct ivs_mr *mr;
	uint32_t count = 0;
	int ret;

	memcpy(&rma, fixed, sizeof(rma));
	if (rma.total < len || rma.total > IVS_MSG_MAX) {
		nonsense(peer, "a write of a wrong length");
		return true;
	}
	ret = target_pieces(ep, &rma, FI_REMOTE_WRITE, iov, &count, &mr);
	if (!ret && rma.total == len) {
		ivs_iov_scatter(iov, count, 0, payload, len);
		target_event(ep, peer, mr, flags & IVS_F_DATA, rma.data, len, FI_REMOTE_WRITE | FI_RMA);
		if (flags & IVS_F_ACK)
			ack(peer, rma.id, 0);
		return true;
	}
	if (ret && rma.total == len) {
		IVS_INFO(FI_LOG_EP_DATA, "refused a write of %zu bytes: %s\n", len, ivs_lib.strerror(-ret));
		if (flags & IVS_F_ACK)
			ack(peer, rma.id, -ret);
		return true;
	}
	if (peer->proto.open_in[IVS_OPEN_WRITE] >= IVS_OPEN_MAX) {
		nonsense(peer, "more writes than it may");
		return true;
	}
	msg = new_msg(peer, IVS_OP_WRITE, flags, 0);
	if (!msg)
		return false;
	peer->proto.open_in[IVS_OPEN_WRITE]++;
	msg->total = rma.total;
	msg->data = rma.data;
	msg->id = rma.id;
	msg->error = ret;
	msg->mr = mr;
	msg->niov = count;
	memcpy(msg->iov, iov, count * sizeof(*iov));
	msg->streaming = true;
	ivs_list_add(&peer->proto.streams, &msg->stream);
	if (!ret)
		ivs_iov_scatter(iov, count, 0, payload, len);
	msg->got = len;
	return true;
}

static bool rma_read(struct ivs_ep *ep, struct ivs_peer *peer, const void *fixed)
{
	struct ivs_tx *tx;
	struct ivs_rma rma;
	struct ivs_mr *mr;
	uint32_t count = 0;

	if (peer->proto.open_in[IVS_OPEN_READ] >= IVS_OPEN_MAX) {
		nonsense(peer, "more reads than it may");
		return true;
	}
	tx = ivs_response_get(peer);
	if (!tx)
		return false;
	memcpy(&rma, fixed, sizeof(rma));
	tx->remote = rma.id;
	tx->error = target_pieces(ep, &rma, FI_REMOTE_READ, tx->iov, &count, &mr);
	tx->count = count;
	if (!tx->error) {
		tx->total = rma.total;
		target_event(ep, peer, mr, false, 0, rma.total, FI_REMOTE_READ | FI_RMA);
	}
	ivs_tx_start(peer, tx);
	return true;
}

/* Returns true if the operation exists and its operands have the right length (len). */
static bool atomic_valid(const struct ivs_atomic *a, size_t len)
{
	size_t size = ivs_type_bytes(a->type);
	size_t want = a->rma.total * (a->kind == IVS_ATOMIC_COMPARE ? 2 : 1);

	return size && a->kind <= IVS_ATOMIC_COMPARE && ivs_atomic_valid(a->type, a->op, a->kind) &&
	       a->rma.total <= IVS_ATOMIC_MAX && !(a->rma.total % size) &&
	       (len == want || (a->op == FI_ATOMIC_READ && !len));
}

/* Executes a checked operation; result: where to store the previous values, or NULL. Returns 0 or a negative error. */
static int atomic_do(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t flags, const struct ivs_atomic *a,
		     const uint8_t *payload, size_t len, uint8_t *result)
{
	uint64_t operand[2 * IVS_ATOMIC_MAX / 8];
	size_t at = 0, size = ivs_type_bytes(a->type);
	struct iovec iov[IVS_PIECES_MAX];
	uint32_t count = 0, i;
	uint64_t access = a->op == FI_ATOMIC_READ
				  ? FI_REMOTE_READ
				  : FI_REMOTE_WRITE | (a->kind != IVS_ATOMIC_WRITE ? FI_REMOTE_READ : 0);
	struct ivs_mr *mr;
	int ret = target_pieces(ep, &a->rma, access, iov, &count, &mr);

	for (i = 0; !ret && i < count; i++)
		if (iov[i].iov_len % size)
			ret = -FI_EINVAL;
	/* The copy is aligned, and the sender cannot change it. */
	ivs_copy(operand, payload, len);
	for (i = 0; !ret && i < count; i++) {
		ret = ivs_atomic_apply(a->type, a->op, a->kind, iov[i].iov_base, (char *) operand + at,
				       (char *) operand + a->rma.total + at, result ? result + at : NULL,
				       iov[i].iov_len / size);
		at += iov[i].iov_len;
	}
	if (!ret)
		target_event(ep, peer, mr, flags & IVS_F_DATA, a->rma.data, a->rma.total,
			     (a->op == FI_ATOMIC_READ ? FI_REMOTE_READ : FI_REMOTE_WRITE) | FI_ATOMIC);
	return ret;
}

static bool atomic(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t flags, const void *fixed, const uint8_t *payload,
		   size_t len)
{
	struct ivs_tx *tx = NULL;
	struct ivs_atomic a;
	int ret;

	memcpy(&a, fixed, sizeof(a));
	if (!atomic_valid(&a, len)) {
		nonsense(peer, "a wrong atomic operation");
		return true;
	}
	if (a.kind != IVS_ATOMIC_WRITE) {
		if (peer->proto.open_in[IVS_OPEN_READ] >= IVS_OPEN_MAX) {
			nonsense(peer, "more atomic operations than it may");
			return true;
		}
		tx = ivs_response_get(peer);
		if (!tx)
			return false;
		tx->remote = a.rma.id;
		tx->own = calloc(1, a.rma.total ? a.rma.total : 1);
		if (!tx->own) {
			ivs_tx_put(ep, tx);
			return false;
		}
	}
	ret = atomic_do(ep, peer, flags, &a, payload, len, tx ? tx->own : NULL);
	if (tx) {
		tx->error = ret;
		if (!ret) {
			tx->total = a.rma.total;
			tx->count = 1;
			tx->iov[0].iov_base = tx->own;
			tx->iov[0].iov_len = a.rma.total;
		}
		ivs_tx_start(peer, tx);
	} else if (flags & IVS_F_ACK) {
		ack(peer, a.rma.id, -ret);
	}
	return true;
}

/* Handles another piece of a write. */
static void write_part(struct ivs_ep *ep, struct ivs_msg *msg, const uint8_t *payload, size_t len)
{
	struct ivs_peer *peer = msg->peer;

	if (!msg->error)
		ivs_iov_scatter(msg->iov, msg->niov, msg->got, payload, len);
	msg->got += len;
	if (msg->got < msg->total)
		return;
	if (!msg->error)
		target_event(ep, peer, msg->mr, msg->flags & IVS_F_DATA, msg->data, msg->total,
			     FI_REMOTE_WRITE | FI_RMA);
	if (msg->flags & IVS_F_ACK)
		ack(peer, msg->id, -msg->error);
	ivs_msg_free(ep, msg);
}

/* Handles another piece of a message whose receive is known. */
static void receive_part(struct ivs_ep *ep, struct ivs_msg *msg, const uint8_t *payload, size_t len)
{
	struct ivs_rx *rx = msg->rx;

	if (msg->got < rx->len) {
		size_t n = rx->len - msg->got;

		ivs_iov_scatter(rx->iov, rx->count, msg->got, payload, len < n ? len : n);
	}
	msg->got += len;
	if (msg->got < msg->total)
		return;
	if (msg->flags & IVS_F_ACK)
		ack(msg->peer, msg->id, 0);
	ivs_rx_complete(ep, rx, msg->op == IVS_OP_TAGGED_LONG, msg->peer, msg->total, msg->tag, msg->flags & IVS_F_DATA,
			msg->data, 0);
	msg->rx = NULL;
	ivs_msg_free(ep, msg);
}

/* Handles another piece of a message that has begun. Returns false if no buffer is free. */
static bool part(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t offset, const void *fixed, const uint8_t *payload,
		 size_t len)
{
	struct ivs_msg *msg = NULL, *m;
	struct ivs_part head;
	struct ivs_list *pos;

	memcpy(&head, fixed, sizeof(head));
	ivs_list_each(pos, &peer->proto.streams) {
		m = ivs_entry(pos, struct ivs_msg, stream);
		if (m->id == head.id) {
			msg = m;
			break;
		}
	}
	if (!msg || msg->coop || msg->fetch || offset != msg->got || len > msg->total - msg->got || !len) {
		nonsense(peer, "a piece of no message");
		return true;
	}
	if (msg->op == IVS_OP_WRITE) {
		write_part(ep, msg, payload, len);
	} else if (msg->rx) {
		receive_part(ep, msg, payload, len);
	} else if (msg->got + len > HELD_MAX || (msg->got + len > msg->charged && !may_hold(ep, peer))) {
		nonsense(peer, "more than it was asked for");
	} else {
		return hold(ep, msg, payload, len);
	}
	return true;
}

static bool overlap(const struct iovec *iov, size_t count, const struct iovec *memory)
{
	uintptr_t start = (uintptr_t) memory->iov_base, at;
	size_t i;

	for (i = 0; i < count; i++) {
		at = (uintptr_t) iov[i].iov_base;
		if (at >= start ? at - start < memory->iov_len : start - at < iov[i].iov_len)
			return true;
	}
	return false;
}

void ivs_stop_access(struct ivs_domain *domain, const struct ivs_mr *mr)
{
	struct ivs_list *e, *p, *s;
	size_t i;

	ivs_list_each(e, &domain->eps) {
		struct ivs_ep *ep = ivs_entry(e, struct ivs_ep, domain_link);

		ivs_list_each(p, &ep->peers_all) {
			struct ivs_peer *peer = ivs_entry(p, struct ivs_peer, all);

			ivs_list_each(s, &peer->proto.streams) {
				struct ivs_msg *msg = ivs_entry(s, struct ivs_msg, stream);

				if (msg->mr == mr)
					msg->mr = NULL;
				for (i = 0; i < mr->count; i++)
					if (msg->op == IVS_OP_WRITE && !msg->error &&
					    overlap(msg->iov, msg->niov, &mr->iov[i]) &&
					    !ivs_mr_covers(domain, msg->iov, msg->niov, FI_REMOTE_WRITE)) {
						msg->error = -FI_EKEYREJECTED;
						msg->mr = NULL;
					}
			}
			ivs_list_each(s, &peer->proto.sending) {
				struct ivs_tx *tx = ivs_entry(s, struct ivs_tx, link);

				for (i = 0; i < mr->count; i++)
					if (tx->response && !tx->own && !tx->error &&
					    overlap(tx->iov, tx->count, &mr->iov[i]) &&
					    !ivs_mr_covers(domain, tx->iov, tx->count, FI_REMOTE_READ))
						tx->error = -FI_EKEYREJECTED;
			}
		}
	}
}

/* Handles the result of one of our reads or fetching atomic operations. */
static void result(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t offset, const void *fixed, const uint8_t *payload,
		   size_t len)
{
	struct ivs_part head;
	struct ivs_tx *tx;

	memcpy(&head, fixed, sizeof(head));
	tx = ivs_tx_find(ep, peer, head.id);
	if (!tx || (tx->op != IVS_OP_READ && tx->op != IVS_OP_ATOMIC) || tx->response ||
	    (!head.status && (offset != tx->sent || len > tx->total - tx->sent))) {
		nonsense(peer, "an answer to nothing");
		return;
	}
	if (head.status) {
		ivs_tx_complete(ep, tx, head.status < 0 && head.status > -4096 ? -head.status : FI_EIO);
		return;
	}
	ivs_iov_scatter(tx->iov, tx->count, tx->sent, payload, len);
	tx->sent += len;
	if (tx->sent == tx->total)
		ivs_tx_complete(ep, tx, 0);
}

/* Handles the receiver's request for the remaining pieces of tx. tx: NULL if it may not request any. */
static void cts(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx)
{
	if (!tx || tx->cts || tx->response || tx->op < IVS_OP_TAGGED_LONG || tx->op > IVS_OP_MSG_RTS) {
		nonsense(peer, "a CTS for nothing");
		return;
	}
	tx->cts = true;
	/* The message was announced for reading, but has to be sent after all. */
	if (tx->op == IVS_OP_TAGGED_RTS || tx->op == IVS_OP_MSG_RTS) {
		tx->op = tx->op == IVS_OP_TAGGED_RTS ? IVS_OP_TAGGED_LONG : IVS_OP_MSG_LONG;
		tx->begun = 0;
		if (tx->shown) {
			ivs_traffic_announced(peer, tx->total, false);
			ivs_shown_end(ep, tx);
		}
		if (tx->core_mr)
			ivs_core_hide(tx);
	}
	ivs_tx_start(peer, tx);
}

/* Handles the receiver's report that it has all of tx, or this error. tx: NULL if it may not report that. */
static void acked(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_tx *tx, int err)
{
	if (!tx || !tx->ack || tx->response) {
		nonsense(peer, "an ACK of a message that was not sent");
		return;
	}
	if (tx->begun)
		ivs_cma_policy_took(&peer->proto.reads, tx->total, ivs_cycles() - tx->begun);
	ivs_tx_complete(ep, tx, err);
}

/* Returns the message that is answered by its id only, or NULL. Not a shown message: any VM could send its id. */
static struct ivs_tx *answered(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t id)
{
	struct ivs_tx *tx = ivs_tx_find(ep, peer, id);

	return tx && !tx->shown ? tx : NULL;
}

static bool receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag,
		    const void *fixed, const uint8_t *payload, size_t len)
{
	uint64_t bytes;

	switch (op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG:
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG:
	case IVS_OP_TAGGED_RTS:
	case IVS_OP_MSG_RTS: return start(ep, peer, op, flags, tag, fixed, payload, len);
	case IVS_OP_DATA: return part(ep, peer, tag, fixed, payload, len);
	case IVS_OP_CTS: cts(ep, peer, answered(ep, peer, tag)); return true;
	case IVS_OP_ACK: acked(ep, peer, answered(ep, peer, (uint32_t) tag), (int) (tag >> 32 & 0xfff)); return true;
	case IVS_OP_SHOWN_CTS: cts(ep, peer, ivs_shown_answered(ep, peer, op, tag)); return true;
	case IVS_OP_SHOWN_ACK: acked(ep, peer, ivs_shown_answered(ep, peer, op, tag), 0); return true;
	case IVS_OP_WRITE: return rma_write(ep, peer, flags, fixed, payload, len);
	case IVS_OP_READ: return rma_read(ep, peer, fixed);
	case IVS_OP_RESULT: result(ep, peer, tag, fixed, payload, len); return true;
	case IVS_OP_ATOMIC: return atomic(ep, peer, flags, fixed, payload, len);
	case IVS_OP_EVENT:
		memcpy(&bytes, fixed, sizeof(bytes));
		target_event(ep, peer, NULL, true, tag, bytes, FI_REMOTE_WRITE | FI_RMA);
		return true;
	case IVS_OP_COOP:
		if (!ivs_coop_write(ep, peer, tag))
			nonsense(peer, "a call to copy nothing");
		return true;
	case IVS_OP_COOP_END: ivs_msg_coop_end(ep, peer, (uint32_t) tag); return true;
	default: nonsense(peer, "a message of no kind"); return true;
	}
}

bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
		 const uint8_t *payload, size_t len)
{
	bool done = receive(ep, peer, op, flags, tag, fixed, payload, len);

	if (unlikely(peer->proto.ctl_count > IVS_CTL_MAX) && peer->channel != IVS_CHAN_DEAD)
		nonsense(peer, "more than it reads the answers to");
	return done;
}
