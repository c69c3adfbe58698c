/* Sending: requests, what is left of them to send, and words to their senders. */
#include "chunk.h"
#include "inner.h"
#include "joint.h"
#include "proto.h"
#include "through.h"

/* Pieces sent in one go before something else gets its turn. */
#define PUMP_MAX	4

/* Bytes from which reading a peer's memory is faster even while others are on the way. */
#define CMA_ALONE	(64 << 10)

int ivs_packet_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	switch (peer->channel) {
	case IVS_CHAN_RING:
		return ivs_ring_send(peer, pkt);
	case IVS_CHAN_INNER:
		return ivs_inner_send(peer, pkt);
	case IVS_CHAN_NONE:
		return -FI_EAGAIN;
	default:
		return -FI_EIO;
	}
}

void ivs_peer_activate(struct ivs_peer *peer)
{
	if (!peer->is_active) {
		peer->is_active = true;
		ivs_list_add(&peer->ep->active, &peer->active);
	}
}

static int send_ctl(struct ivs_peer *peer, uint8_t op, uint64_t tag, const uint64_t *len)
{
	struct ivs_packet pkt = { .op = op, .tag = tag };

	if (op == IVS_OP_EVENT) {
		pkt.fixed = len;
		pkt.fixed_len = sizeof(*len);
	}
	return ivs_packet_send(peer, &pkt);
}

static void ctl(struct ivs_peer *peer, uint8_t op, uint64_t tag, uint64_t len)
{
	struct ivs_ctl *c;

	if (peer->channel == IVS_CHAN_DEAD)
		return;
	if (peer->channel == IVS_CHAN_NONE)
		ivs_peer_connect(peer);
	if (!peer->ctl_head && send_ctl(peer, op, tag, &len) != -FI_EAGAIN)
		return;
	c = calloc(1, sizeof(*c));
	if (!c) {
		ivs_peer_dead(peer, FI_ENOMEM);
		return;
	}
	c->op = op;
	c->tag = tag;
	c->len = len;
	*peer->ctl_tail = c;
	peer->ctl_tail = &c->next;
	ivs_peer_activate(peer);
}

void ivs_ctl_send(struct ivs_peer *peer, uint8_t op, uint64_t tag)
{
	ctl(peer, op, tag, 0);
}

void ivs_event_send(struct ivs_peer *peer, uint64_t data, uint64_t len)
{
	ctl(peer, IVS_OP_EVENT, data, len);
}

static bool flush_ctl(struct ivs_peer *peer)
{
	struct ivs_ctl *c;

	while ((c = peer->ctl_head)) {
		if (send_ctl(peer, c->op, c->tag, &c->len) == -FI_EAGAIN)
			return false;
		peer->ctl_head = c->next;
		if (!c->next)
			peer->ctl_tail = &peer->ctl_head;
		free(c);
	}
	return true;
}

struct ivs_tx *ivs_tx_get(struct ivs_ep *ep, struct ivs_peer *peer)
{
	struct ivs_tx *tx;
	uint32_t index;

	if (!ep->tx_free_count) {
		size_t old = ep->tx_table_size, size = old ? 2 * old : 64, i;
		struct ivs_tx **table;
		uint32_t *ids;

		if (size > 65536)
			return NULL;
		table = realloc(ep->tx_table, size * sizeof(*table));
		if (!table)
			return NULL;
		ep->tx_table = table;
		ids = realloc(ep->tx_free_ids, size * sizeof(*ids));
		if (!ids)
			return NULL;
		ep->tx_free_ids = ids;
		for (i = size; i-- > old;) {
			table[i] = NULL;
			ids[ep->tx_free_count++] = (uint32_t) i;
		}
		ep->tx_table_size = size;
	}
	index = ep->tx_free_ids[ep->tx_free_count - 1];
	tx = ep->tx_table[index];
	if (!tx) {
		tx = malloc(sizeof(*tx));
		if (!tx)
			return NULL;
		ep->tx_table[index] = tx;
	}
	ep->tx_free_count--;
	memset(tx, 0, sizeof(*tx));
	tx->id = ++ep->tx_gen << 16 | index;
	tx->peer = peer;
	ivs_list_init(&tx->link);
	return tx;
}

void ivs_tx_put(struct ivs_ep *ep, struct ivs_tx *tx)
{
	if (tx->queued)
		ivs_list_del(&tx->link);
	free(tx->own);
	tx->own = NULL;
	tx->peer = NULL;
	ep->tx_free_ids[ep->tx_free_count++] = tx->id & 0xffff;
}

struct ivs_tx *ivs_tx_find(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t id)
{
	struct ivs_tx *tx;

	if (id > UINT32_MAX || (id & 0xffff) >= ep->tx_table_size)
		return NULL;
	tx = ep->tx_table[id & 0xffff];
	return tx && tx->peer == peer && tx->id == id ? tx : NULL;
}

void ivs_tx_complete(struct ivs_ep *ep, struct ivs_tx *tx, int err)
{
	struct ivs_cntr *cntr = ep->cntr[tx->flags & FI_READ ? IVS_CNTR_READ :
					 tx->flags & FI_WRITE ? IVS_CNTR_WRITE : IVS_CNTR_SEND];

	if (!tx->response) {
		if (err) {
			ivs_cq_error(ep->tx_cq, tx->context, tx->flags & ~FI_COMPLETION, 0, NULL,
				     0, tx->tag, 0, err);
			ivs_cntr_fail(cntr);
		} else {
			if (tx->flags & FI_COMPLETION)
				ivs_cq_add(ep->tx_cq, tx->context, tx->flags & ~FI_COMPLETION,
					   tx->total, NULL, 0, tx->tag, FI_ADDR_NOTAVAIL);
			ivs_cntr_inc(cntr, tx->total);
		}
	}
	ivs_tx_put(ep, tx);
}

void ivs_ack_later(struct ivs_peer *peer, struct ivs_tx *tx)
{
	if (tx->queued)
		ivs_list_del(&tx->link);
	tx->queued = true;
	ivs_list_add(&peer->waiting, &tx->link);
}

/*
 * Bytes of a longer message's pieces: large ones are copied faster, small ones begin to
 * be copied by the receiver earlier.
 */
static inline size_t part_bytes(const struct ivs_peer *peer, size_t total)
{
	size_t quarter = total / 4 & ~(size_t) 4095;

	return quarter < peer->piece && peer->channel == IVS_CHAN_RING && quarter >= IVS_CHUNK ?
	       quarter : peer->piece;
}

/*
 * Sends a piece of one request, if it may be sent. Of several requests each gets its turn:
 * messages from or to the same memory find more of it in the caches (1.2 times the
 * bandwidth from 2 MiB on), and a short one need not wait for all of a long one.
 * Gives false if there is no room; *more: it has more to send.
 */
static bool pump(struct ivs_peer *peer, struct ivs_tx *tx, int *budget, bool *more)
{
	struct ivs_ep *ep = peer->ep;
	struct ivs_part part = { .id = tx->response ? tx->remote : tx->id,
				 .status = tx->error };
	struct ivs_packet pkt = {
		.op = tx->response ? IVS_OP_RESULT : IVS_OP_DATA,
		.fixed = &part, .fixed_len = sizeof(part),
		.iov = tx->iov, .count = tx->count,
		.far = tx->far,
	};
	bool once = tx->response && (!tx->total || tx->error);
	size_t part_len = part_bytes(peer, tx->total);
	int ret;

	if (once || tx->sent < tx->total) {
		if (!tx->response && !tx->cleared && tx->sent >= ivs_param.window)
			return true;
		if (!*budget)
			return false;
		pkt.len = tx->error ? 0 : tx->total - tx->sent;
		if (pkt.len > part_len)
			pkt.len = part_len;
		pkt.tag = tx->sent;
		pkt.offset = tx->sent;
		ret = ivs_packet_send(peer, &pkt);
		if (ret == -FI_EAGAIN)
			return false;
		if (ret) {
			ivs_tx_complete(ep, tx, -ret);
			return true;
		}
		tx->sent += pkt.len;
		(*budget)--;
		if (!once && !tx->error && tx->sent < tx->total) {
			ivs_list_del(&tx->link);
			ivs_list_add(&peer->sending, &tx->link);
			*more = true;
			return true;
		}
	}
	if (tx->ack)
		ivs_ack_later(peer, tx);
	else
		ivs_tx_complete(ep, tx, 0);
	return true;
}

void ivs_peer_pump(struct ivs_peer *peer)
{
	struct ivs_list *pos, *tmp;
	int budget = PUMP_MAX;
	bool more = false;

	if (peer->channel == IVS_CHAN_NONE && ivs_peer_connect(peer))
		return;
	if (!flush_ctl(peer))
		return;
	ivs_list_each_safe(pos, tmp, &peer->sending) {
		struct ivs_tx *tx = ivs_entry(pos, struct ivs_tx, link);

		if (!pump(peer, tx, &budget, &more)) {
			more = true;
			break;
		}
	}
	if (!more && !peer->ctl_head && peer->is_active) {
		/* Those that wait for a CLEAR make it active again. */
		peer->is_active = false;
		ivs_list_del(&peer->active);
	}
}

void ivs_tx_start(struct ivs_peer *peer, struct ivs_tx *tx)
{
	if (tx->queued)
		ivs_list_del(&tx->link);
	tx->queued = true;
	ivs_list_add(&peer->sending, &tx->link);
	ivs_peer_activate(peer);
	ivs_peer_pump(peer);
}

/* Is [base, base + len) in the region? Gives its offset there, or -1. */
static int64_t region_offset(const struct ivs_ep *ep, const void *base, size_t len)
{
	const struct ivs_region *r = ep->domain->region;
	uintptr_t at = (uintptr_t) base, start;

	if (!r)
		return -1;
	start = (uintptr_t) r->base;
	if (at < start || at - start > r->header.size_bytes ||
	    len > r->header.size_bytes - (at - start))
		return -1;
	return (int64_t) (at - start);
}

/*
 * May the receiver read the message from where it is? In the region always; from our
 * memory if it is a neighbour's, and if that is faster.
 */
static bool pullable(struct ivs_ep *ep, struct ivs_peer *peer, const struct iovec *iov,
		     size_t count, size_t len, uint8_t *flags)
{
	bool alone;
	size_t i;

	if (peer->channel != IVS_CHAN_RING)
		return false;
	for (i = 0; i < count; i++)
		if (region_offset(ep, iov[i].iov_base, iov[i].iov_len) < 0)
			break;
	if (i == count) {
		*flags = IVS_F_REGION;
		return true;
	}
	*flags = 0;
	if (len < ivs_param.cma_min || len > ivs_param.cma_max)
		return false;
	/* Of many in a row two copies, one on each core, are faster up to some size. */
	alone = ivs_list_empty(&peer->waiting);
	if (len < CMA_ALONE && !alone)
		return false;
	if (len < IVS_DIRECT_SURE && ivs_param.cma_measure && peer->pid && ivs_past_timed() &&
	    !ivs_direct_better(&peer->reads, len,
			       ivs_past_cycles(&peer->past, peer->tx_ctl, len, part_bytes(peer, len)),
			       alone))
		return false;
	if (count == 1 && ivs_joint_fits(peer, len))
		*flags = IVS_F_JOINT;
	return peer->pid != 0;
}

static ssize_t send_pull(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op,
			 const struct iovec *iov, size_t count, size_t len, uint64_t tag,
			 uint64_t data, void *context, uint64_t flags, uint8_t pull)
{
	struct ivs_pull head;
	struct ivs_packet pkt = {
		.op = op == IVS_OP_TAGGED ? IVS_OP_TAGGED_PULL : IVS_OP_MSG_PULL,
		.flags = pull | (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0),
		.tag = tag, .fixed = &head, .fixed_len = sizeof(head),
	};
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	size_t i;
	bool alone = ivs_list_empty(&peer->waiting);
	int ret;

	if (!tx)
		return -FI_EAGAIN;
	memset(&head, 0, sizeof(head));
	head.total = len;
	head.data = data;
	head.id = tx->id;
	head.count = (uint32_t) count;
	for (i = 0; i < count; i++) {
		head.iov[i].addr = pull & IVS_F_REGION ? (uint64_t) region_offset(ep, iov[i].iov_base,
								   iov[i].iov_len) :
				   (uintptr_t) iov[i].iov_base;
		head.iov[i].len = iov[i].iov_len;
		tx->iov[i] = iov[i];
	}
	if (alone && !(pull & IVS_F_REGION) && len < IVS_DIRECT_SURE)
		tx->begun = ivs_cycles();
	ret = ivs_packet_send(peer, &pkt);
	if (ret) {
		ivs_tx_put(ep, tx);
		return ret;
	}
	tx->op = pkt.op;
	tx->count = count;
	tx->total = len;
	tx->tag = tag;
	tx->context = context;
	tx->flags = flags & (FI_COMPLETION | FI_SEND | FI_MSG | FI_TAGGED);
	tx->ack = true;
	ivs_ack_later(peer, tx);
	return 0;
}

static ssize_t send_long(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op,
			 const struct iovec *iov, size_t count, size_t len, uint64_t tag,
			 uint64_t data, void *context, uint64_t flags)
{
	struct ivs_long head = { .total = len, .data = data };
	struct ivs_packet pkt = {
		.op = op == IVS_OP_TAGGED ? IVS_OP_TAGGED_LONG : IVS_OP_MSG_LONG,
		.flags = (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0) |
			 (flags & FI_DELIVERY_COMPLETE ? IVS_F_ACK : 0) |
			 (len > ivs_param.window ? IVS_F_CLEAR : 0),
		.tag = tag, .fixed = &head, .fixed_len = sizeof(head),
		.iov = iov, .count = count, .len = part_bytes(peer, len),
		.far = ivs_chunk_far(peer, len),
	};
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	int ret;

	if (!tx)
		return -FI_EAGAIN;
	head.id = tx->id;
	ret = ivs_packet_send(peer, &pkt);
	if (ret == -FI_EAGAIN) {
		/* No buffer free: the start alone, the bytes when there is one. */
		pkt.len = 0;
		ret = ivs_packet_send(peer, &pkt);
	}
	if (ret) {
		ivs_tx_put(ep, tx);
		return ret;
	}
	tx->op = pkt.op;
	memcpy(tx->iov, iov, count * sizeof(*iov));
	tx->count = count;
	tx->total = len;
	tx->sent = pkt.len;
	tx->tag = tag;
	tx->context = context;
	tx->flags = flags & (FI_COMPLETION | FI_SEND | FI_MSG | FI_TAGGED);
	tx->ack = flags & FI_DELIVERY_COMPLETE;
	tx->cleared = !(pkt.flags & IVS_F_CLEAR);
	tx->far = pkt.far;
	ivs_tx_start(peer, tx);
	return 0;
}

ssize_t ivs_send(struct ivs_ep *ep, uint8_t op, const struct iovec *iov, size_t count,
		 fi_addr_t dest, uint64_t tag, uint64_t data, void *context, uint64_t flags)
{
	struct ivs_peer *peer;
	struct ivs_packet pkt;
	uint64_t fixed[2];
	struct ivs_tx *tx = NULL;
	size_t len;
	uint8_t pull;
	int ret = 0;

	if (unlikely(ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD))
		return -FI_EAGAIN;
	peer = ivs_peer_get(ep, dest, &ret);
	if (unlikely(!peer))
		return ret;
	flags |= FI_SEND | (op == IVS_OP_TAGGED ? FI_TAGGED : FI_MSG);
	if (likely(count == 1 && iov->iov_len + 8 <= ivs_param.inline_max &&
		   peer->channel == IVS_CHAN_RING &&
		   (!(flags & FI_DELIVERY_COMPLETE) || flags & FI_INJECT))) {
		len = iov->iov_len;
		if (unlikely(!ivs_ring_put(peer, op, tag,
					   flags & FI_REMOTE_CQ_DATA ? &data : NULL,
					   iov->iov_base, len)))
			return -FI_EAGAIN;
		goto sent;
	}
	len = ivs_iov_bytes(iov, count);
	if (peer->addr.kind == IVS_ADDR_TAGGED && op == IVS_OP_TAGGED)
		return ivs_through_send(peer, iov, count, len, tag, data, context, flags);
	if (unlikely(len > peer->piece ||
		     (len >= ivs_param.cma_min && !(flags & FI_INJECT)))) {
		if (flags & FI_INJECT)
			return -FI_EMSGSIZE;
		if (pullable(ep, peer, iov, count, len, &pull))
			return send_pull(ep, peer, op, iov, count, len, tag, data, context,
					 flags, pull);
		if (len > peer->piece)
			return send_long(ep, peer, op, iov, count, len, tag, data, context,
					 flags);
	}
	pkt.op = op;
	pkt.flags = 0;
	pkt.tag = tag;
	pkt.fixed = fixed;
	pkt.fixed_len = 0;
	pkt.iov = iov;
	pkt.count = count;
	pkt.offset = 0;
	pkt.len = len;
	pkt.far = false;
	if (unlikely(flags & FI_REMOTE_CQ_DATA)) {
		fixed[0] = data;
		pkt.fixed_len = 8;
		pkt.flags = IVS_F_DATA;
	}
	if (unlikely(flags & FI_DELIVERY_COMPLETE && !(flags & FI_INJECT))) {
		tx = ivs_tx_get(ep, peer);
		if (!tx)
			return -FI_EAGAIN;
		fixed[pkt.fixed_len / 8] = tx->id;
		pkt.fixed_len += 8;
		pkt.flags |= IVS_F_ACK;
	}
	ret = ivs_packet_send(peer, &pkt);
	if (unlikely(ret)) {
		if (tx)
			ivs_tx_put(ep, tx);
		return ret;
	}
	if (unlikely(tx)) {
		tx->op = op;
		tx->total = len;
		tx->tag = tag;
		tx->context = context;
		tx->flags = flags & (FI_COMPLETION | FI_SEND | FI_MSG | FI_TAGGED);
		tx->ack = true;
		ivs_ack_later(peer, tx);
		return 0;
	}
sent:
	if (flags & FI_COMPLETION)
		ivs_cq_add(ep->tx_cq, context, flags & (FI_SEND | FI_MSG | FI_TAGGED), len,
			   NULL, 0, tag, FI_ADDR_NOTAVAIL);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
	return 0;
}
