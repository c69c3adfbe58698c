/* What is done with a message that has arrived. */
#include "joint.h"

#define HELD_MAX	((size_t) 1 << 20)	/* bytes of one message before its receive */

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
	ivs_peer_dead(p, FI_EIO);
}

/* Keeps bytes of a message that has no receive yet. */
static bool hold(struct ivs_ep *ep, struct ivs_msg *msg, const uint8_t *payload, size_t len)
{
	uint8_t *buf;
	size_t need = msg->got + len;

	if (need > msg->held) {
		size_t grow = msg->total < ivs_param.window ? msg->total : ivs_param.window;

		if (grow < need)
			grow = need;
		buf = realloc(msg->buf, grow ? grow : 1);
		if (!buf)
			return false;
		msg->buf = buf;
		ep->ux_bytes += grow - msg->held;
		msg->held = grow;
	}
	ivs_copy(msg->buf + msg->got, payload, len);
	msg->got += len;
	return true;
}

/* A message, or its start. */
static bool start(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags,
		  uint64_t tag, const void *fixed, const uint8_t *payload, size_t len)
{
	bool tagged = op == IVS_OP_TAGGED || op == IVS_OP_TAGGED_LONG ||
		      op == IVS_OP_TAGGED_PULL;
	uint64_t data = 0, id = 0;
	size_t total = len, i;
	struct ivs_long head;
	struct ivs_pull where;
	struct ivs_rx *rx;
	struct ivs_msg *msg;

	memset(&where, 0, sizeof(where));
	switch (op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG:
		if (flags & IVS_F_DATA)
			memcpy(&data, fixed, 8);
		if (flags & IVS_F_ACK)
			memcpy(&id, (const char *) fixed + (flags & IVS_F_DATA ? 8 : 0), 8);
		break;
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG:
		memcpy(&head, fixed, sizeof(head));
		total = head.total;
		data = head.data;
		id = head.id;
		if (total < len || total > IVS_MSG_MAX) {
			nonsense(peer, "a message of a wrong length");
			return true;
		}
		break;
	default:
		memcpy(&where, fixed, sizeof(where));
		total = where.total;
		data = where.data;
		id = where.id;
		if (where.count > IVS_IOV_MAX || total > IVS_MSG_MAX || len) {
			nonsense(peer, "a message of a wrong kind");
			return true;
		}
		for (i = 0; i < where.count; i++) {
			if (where.iov[i].len > IVS_MSG_MAX ||
			    (flags & IVS_F_REGION &&
			     (!ep->domain->region ||
			      where.iov[i].addr > ep->domain->region->header.size_bytes ||
			      where.iov[i].len > ep->domain->region->header.size_bytes -
						 where.iov[i].addr))) {
				nonsense(peer, "a message outside the region");
				return true;
			}
		}
	}

	rx = ivs_match_posted(ep, tagged ? &ep->tagged : &ep->msg, tagged, peer, tag, total);
	if (rx && total == len && op <= IVS_OP_MSG) {
		ivs_iov_scatter(rx->iov, rx->count, 0, payload, len < rx->len ? len : rx->len);
		if (flags & IVS_F_ACK)
			ivs_ctl_send(peer, IVS_OP_ACK, (uint32_t) id);
		ivs_rx_complete(ep, rx, tagged, peer, total, tag, flags & IVS_F_DATA, data, 0);
		return true;
	}
	if (rx && where.count && !(flags & (IVS_F_REGION | IVS_F_JOINT)) &&
	    peer->channel != IVS_CHAN_DEAD) {
		struct iovec remote[IVS_IOV_MAX];

		for (i = 0; i < where.count; i++) {
			remote[i].iov_base = (void *) (uintptr_t) where.iov[i].addr;
			remote[i].iov_len = where.iov[i].len;
		}
		/* Where that cannot be, it is asked for in pieces below. */
		if (!ivs_cma(peer, false, rx->iov, rx->count, remote, where.count,
			     total < rx->len ? total : rx->len)) {
			ivs_ctl_send(peer, IVS_OP_ACK, (uint32_t) id);
			ivs_rx_complete(ep, rx, tagged, peer, total, tag, flags & IVS_F_DATA,
					data, 0);
			return true;
		}
	}
	if (!rx && ep->ux_bytes > ivs_param.unexpected)
		return false;
	msg = new_msg(peer, op, flags, tag);
	if (!msg) {
		if (rx)
			ivs_rx_complete(ep, rx, tagged, peer, total, tag, false, 0, FI_ENOMEM);
		return rx != NULL;
	}
	msg->total = total;
	msg->data = data;
	msg->id = (uint32_t) id;
	if (op == IVS_OP_TAGGED_PULL || op == IVS_OP_MSG_PULL) {
		msg->niov = where.count;
		for (i = 0; i < where.count; i++) {
			msg->iov[i].iov_base = (void *) (uintptr_t) where.iov[i].addr;
			msg->iov[i].iov_len = where.iov[i].len;
		}
		/* Nothing was sent yet: what is asked for comes whole. */
		msg->flags |= IVS_F_ACK;
	} else if (total > len) {
		msg->streaming = true;
		ivs_list_add(&peer->streams, &msg->stream);
	}
	if (rx) {
		if (len) {
			ivs_iov_scatter(rx->iov, rx->count, 0, payload,
					len < rx->len ? len : rx->len);
		}
		msg->rx = rx;
		if (op != IVS_OP_TAGGED_PULL && op != IVS_OP_MSG_PULL) {
			/* Attached by hand: the first bytes are in their place. */
			msg->got = len;
			if (msg->flags & IVS_F_CLEAR) {
				msg->asked = true;
				ivs_ctl_send(peer, IVS_OP_CLEAR, msg->id);
			}
			return true;
		}
		ivs_msg_attach(ep, msg, rx);
		return true;
	}
	if (len && !hold(ep, msg, payload, len)) {
		ivs_msg_free(ep, msg);
		return false;
	}
	/* Small ones cost more than their bytes. */
	if (!msg->held) {
		msg->held = 64;
		ep->ux_bytes += 64;
	}
	msg->queued = true;
	ivs_list_add(tagged ? &ep->ux_tagged : &ep->ux_msg, &msg->link);
	return true;
}

static void ack(struct ivs_peer *peer, uint32_t id, int err)
{
	ivs_ctl_send(peer, IVS_OP_ACK, (uint64_t) (uint32_t) err << 32 | id);
}

/* A write or atomic of a peer's is in its place. */
static void target_event(struct ivs_ep *ep, struct ivs_peer *peer, struct ivs_mr *mr,
			 bool has_data, uint64_t data, size_t len, uint64_t flags)
{
	int dir = flags & FI_REMOTE_READ ? 0 : 1;

	if (has_data)
		ivs_cq_add(ep->rx_cq, NULL, flags | FI_REMOTE_CQ_DATA, len, NULL, data, 0,
			   peer->fi_addr);
	ivs_cntr_inc(ep->rma_cntr[dir], len);
	if (mr && mr->cntr[dir] != ep->rma_cntr[dir])
		ivs_cntr_inc(mr->cntr[dir], len);
}

/* Checks what a peer wants to reach; gives pieces in iov, or a negative error. */
static int target_pieces(struct ivs_ep *ep, const struct ivs_rma *rma, uint64_t access,
			 struct iovec *iov, uint32_t *count, struct ivs_mr **first)
{
	size_t i, n = 0, sum = 0, k;

	*first = NULL;

	if (rma->count > IVS_IOV_MAX || rma->total > IVS_MSG_MAX)
		return -FI_EINVAL;
	for (i = 0; i < rma->count; i++) {
		struct ivs_mr *mr = ivs_mr_find(ep->domain, rma->rma[i].key, rma->rma[i].addr,
						rma->rma[i].len, access);

		if (!mr)
			return -FI_EKEYREJECTED;
		if (!i)
			*first = mr;
		if (rma->rma[i].len > IVS_MSG_MAX)
			return -FI_EINVAL;
		if (!rma->rma[i].len)
			continue;
		k = ivs_mr_pieces(mr, rma->rma[i].addr, rma->rma[i].len, iov + n,
				  IVS_PIECES_MAX - n);
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

static bool rma_write(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t flags,
		      const void *fixed, const uint8_t *payload, size_t len)
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
		target_event(ep, peer, mr, flags & IVS_F_DATA, rma.data, len,
			     FI_REMOTE_WRITE | FI_RMA);
		if (flags & IVS_F_ACK)
			ack(peer, rma.id, 0);
		return true;
	}
	if (ret && rma.total == len) {
		IVS_INFO(FI_LOG_EP_DATA, "refused a write of %zu bytes: %s\n", len,
			 ivs_lib.strerror(-ret));
		if (flags & IVS_F_ACK)
			ack(peer, rma.id, -ret);
		return true;
	}
	msg = new_msg(peer, IVS_OP_WRITE, flags, 0);
	if (!msg)
		return false;
	msg->total = rma.total;
	msg->data = rma.data;
	msg->id = rma.id;
	msg->error = ret;
	msg->mr = mr;
	msg->niov = count;
	memcpy(msg->iov, iov, count * sizeof(*iov));
	msg->streaming = true;
	ivs_list_add(&peer->streams, &msg->stream);
	if (!ret)
		ivs_iov_scatter(iov, count, 0, payload, len);
	msg->got = len;
	return true;
}

static bool rma_read(struct ivs_ep *ep, struct ivs_peer *peer, const void *fixed)
{
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	struct ivs_rma rma;
	struct ivs_mr *mr;
	uint32_t count = 0;

	if (!tx)
		return false;
	memcpy(&rma, fixed, sizeof(rma));
	tx->op = IVS_OP_RESULT;
	tx->response = true;
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

static bool atomic(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t flags, const void *fixed,
		   const uint8_t *payload, size_t len)
{
	struct iovec iov[IVS_PIECES_MAX];
	uint64_t operand[2 * IVS_ATOMIC_MAX / 8];
	struct ivs_tx *tx = NULL;
	struct ivs_atomic a;
	struct ivs_mr *mr;
	uint32_t count = 0, i;
	size_t at = 0, size, want;
	uint64_t access;
	bool reads;
	int ret;

	memcpy(&a, fixed, sizeof(a));
	size = ivs_type_bytes(a.type);
	want = a.rma.total * (a.kind == IVS_ATOMIC_COMPARE ? 2 : 1);
	if (!size || a.kind > IVS_ATOMIC_COMPARE || !ivs_atomic_valid(a.type, a.op, a.kind) ||
	    a.rma.total > IVS_ATOMIC_MAX || a.rma.total % size ||
	    (len != want && !(a.op == FI_ATOMIC_READ && !len))) {
		nonsense(peer, "a wrong atomic operation");
		return true;
	}
	reads = a.kind != IVS_ATOMIC_WRITE;
	access = a.op == FI_ATOMIC_READ ? FI_REMOTE_READ :
		 FI_REMOTE_WRITE | (reads ? FI_REMOTE_READ : 0);
	if (reads) {
		tx = ivs_tx_get(ep, peer);
		if (!tx)
			return false;
		tx->op = IVS_OP_RESULT;
		tx->response = true;
		tx->remote = a.rma.id;
		tx->own = calloc(1, a.rma.total ? a.rma.total : 1);
		if (!tx->own) {
			ivs_tx_put(ep, tx);
			return false;
		}
	}
	ret = target_pieces(ep, &a.rma, access, iov, &count, &mr);
	for (i = 0; !ret && i < count; i++)
		if (iov[i].iov_len % size)
			ret = -FI_EINVAL;
	/* Aligned, and not changed by the sender while it is used. */
	ivs_copy(operand, payload, len);
	for (i = 0; !ret && i < count; i++) {
		ret = ivs_atomic_apply(a.type, a.op, a.kind, iov[i].iov_base,
				       (char *) operand + at,
				       (char *) operand + a.rma.total + at,
				       tx ? tx->own + at : NULL, iov[i].iov_len / size);
		at += iov[i].iov_len;
	}
	if (!ret)
		target_event(ep, peer, mr, flags & IVS_F_DATA, a.rma.data, a.rma.total,
			     (a.op == FI_ATOMIC_READ ? FI_REMOTE_READ : FI_REMOTE_WRITE) |
			     FI_ATOMIC);
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

/* More of a message that has begun. */
static bool part(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t offset, const void *fixed,
		 const uint8_t *payload, size_t len)
{
	struct ivs_msg *msg = NULL, *m;
	struct ivs_part head;
	struct ivs_list *pos;

	memcpy(&head, fixed, sizeof(head));
	ivs_list_each(pos, &peer->streams) {
		m = ivs_entry(pos, struct ivs_msg, stream);
		if (m->id == head.id) {
			msg = m;
			break;
		}
	}
	if (!msg || msg->joint || offset != msg->got || len > msg->total - msg->got || !len) {
		nonsense(peer, "a piece of no message");
		return true;
	}
	if (msg->op == IVS_OP_WRITE) {
		if (!msg->error)
			ivs_iov_scatter(msg->iov, msg->niov, msg->got, payload, len);
		msg->got += len;
		if (msg->got < msg->total)
			return true;
		if (!msg->error)
			target_event(ep, peer, msg->mr, msg->flags & IVS_F_DATA, msg->data,
				     msg->total, FI_REMOTE_WRITE | FI_RMA);
		if (msg->flags & IVS_F_ACK)
			ack(peer, msg->id, -msg->error);
		ivs_msg_free(ep, msg);
		return true;
	}
	if (!msg->rx) {
		if (msg->got + len > HELD_MAX) {
			nonsense(peer, "more than it was asked for");
			return true;
		}
		return hold(ep, msg, payload, len);
	}
	if (msg->got < msg->rx->len) {
		size_t n = msg->rx->len - msg->got;

		ivs_iov_scatter(msg->rx->iov, msg->rx->count, msg->got, payload,
				len < n ? len : n);
	}
	msg->got += len;
	if (msg->got == msg->total) {
		bool tagged = msg->op == IVS_OP_TAGGED_LONG;
		struct ivs_rx *rx = msg->rx;

		if (msg->flags & IVS_F_ACK)
			ack(peer, msg->id, 0);
		ivs_rx_complete(ep, rx, tagged, peer, msg->total, msg->tag,
				msg->flags & IVS_F_DATA, msg->data, 0);
		msg->rx = NULL;
		ivs_msg_free(ep, msg);
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

			ivs_list_each(s, &peer->streams) {
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
			ivs_list_each(s, &peer->sending) {
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

/* What we asked for with a read or a fetching atomic. */
static void result(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t offset, const void *fixed,
		   const uint8_t *payload, size_t len)
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
		ivs_tx_complete(ep, tx, head.status < 0 && head.status > -4096 ?
				-head.status : FI_EIO);
		return;
	}
	ivs_iov_scatter(tx->iov, tx->count, tx->sent, payload, len);
	tx->sent += len;
	if (tx->sent == tx->total)
		ivs_tx_complete(ep, tx, 0);
}

bool ivs_receive(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, uint8_t flags,
		 uint64_t tag, const void *fixed, const uint8_t *payload, size_t len)
{
	struct ivs_tx *tx;
	uint64_t bytes;

	switch (op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG:
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG:
	case IVS_OP_TAGGED_PULL:
	case IVS_OP_MSG_PULL:
		return start(ep, peer, op, flags, tag, fixed, payload, len);
	case IVS_OP_DATA:
		return part(ep, peer, tag, fixed, payload, len);
	case IVS_OP_CLEAR:
		tx = ivs_tx_find(ep, peer, tag);
		if (!tx || tx->cleared || tx->response || tx->op < IVS_OP_TAGGED_LONG ||
		    tx->op > IVS_OP_MSG_PULL) {
			nonsense(peer, "leave to send nothing");
			return true;
		}
		tx->cleared = true;
		/* Shown to be read, but it has to be sent after all. */
		if (tx->op == IVS_OP_TAGGED_PULL || tx->op == IVS_OP_MSG_PULL) {
			tx->op = tx->op == IVS_OP_TAGGED_PULL ? IVS_OP_TAGGED_LONG :
				 IVS_OP_MSG_LONG;
			tx->begun = 0;
		}
		ivs_tx_start(peer, tx);
		return true;
	case IVS_OP_ACK:
		tx = ivs_tx_find(ep, peer, (uint32_t) tag);
		if (!tx || !tx->ack || tx->response) {
			nonsense(peer, "word of a message that was not sent");
			return true;
		}
		if (tx->begun)
			ivs_direct_took(&peer->reads, tx->total, ivs_cycles() - tx->begun);
		ivs_tx_complete(ep, tx, (int) (tag >> 32 & 0xfff));
		return true;
	case IVS_OP_WRITE:
		return rma_write(ep, peer, flags, fixed, payload, len);
	case IVS_OP_READ:
		return rma_read(ep, peer, fixed);
	case IVS_OP_RESULT:
		result(ep, peer, tag, fixed, payload, len);
		return true;
	case IVS_OP_ATOMIC:
		return atomic(ep, peer, flags, fixed, payload, len);
	case IVS_OP_EVENT:
		memcpy(&bytes, fixed, sizeof(bytes));
		target_event(ep, peer, NULL, true, tag, bytes, FI_REMOTE_WRITE | FI_RMA);
		return true;
	case IVS_OP_JOINT:
		if (!ivs_joint_write(ep, peer, fixed))
			nonsense(peer, "a call to copy nothing");
		return true;
	case IVS_OP_JOINED:
		if (!ivs_msg_joined(ep, peer, (uint32_t) tag, (uint32_t) (tag >> 32)))
			nonsense(peer, "word of copies that were not asked for");
		return true;
	default:
		nonsense(peer, "a message of no kind");
		return true;
	}
}
