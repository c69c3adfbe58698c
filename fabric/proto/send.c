/* Sends messages, their pieces in rotation, and control messages. */
#include "proto/proto.h"
#include "proto/select.h"
#include "proto/shown.h"
#include "proto/traffic.h"
#include "remote/core.h"
#include "remote/fetch.h"
#include "remote/passthrough.h"
#include "ring/ring.h"
#include "tune.h"

int ivs_packet_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	struct ivs_ring *ring = &peer->ring;

	switch (peer->channel) {
	case IVS_CHAN_RING:
		/*
		 * The inlined code needs only the ring's address. Without this line GCC also keeps the peer's, and
		 * spills.
		 */
		__asm__("" : "+r"(ring));
		return ivs_ring_send(ring, pkt);
	case IVS_CHAN_CORE: return ivs_core_send(peer, pkt);
	case IVS_CHAN_NONE: return -FI_EAGAIN;
	default: return -FI_EIO;
	}
}

static int send_ctl(struct ivs_peer *peer, uint8_t op, uint64_t tag, const uint64_t *len)
{
	struct ivs_packet pkt = {
		.op = op, .tag = tag, .fixed = len, .fixed_len = op == IVS_OP_EVENT ? sizeof(*len) : 0
	};

	if (likely(peer->channel == IVS_CHAN_RING))
		return ivs_ring_send_head(&peer->ring, op, 0, tag, len, pkt.fixed_len) ? 0 : -FI_EAGAIN;
	return ivs_packet_send(peer, &pkt);
}

static void ctl(struct ivs_peer *peer, uint8_t op, uint64_t tag, uint64_t len)
{
	struct ivs_ctl *c;

	if (peer->channel == IVS_CHAN_DEAD)
		return;
	if (peer->channel == IVS_CHAN_NONE)
		ivs_peer_connect(peer);
	if (!peer->proto.ctl_head && send_ctl(peer, op, tag, &len) != -FI_EAGAIN)
		return;
	/*
	 * The peer is not ended here, where one of its messages may be being handled: ivs_receive() checks the count.
	 */
	c = peer->proto.ctl_count <= IVS_CTL_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		peer->proto.ctl_count = IVS_CTL_MAX + 1;
		return;
	}
	peer->proto.ctl_count++;
	c->op = op;
	c->tag = tag;
	c->len = len;
	*peer->proto.ctl_tail = c;
	peer->proto.ctl_tail = &c->next;
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

	while ((c = peer->proto.ctl_head)) {
		if (send_ctl(peer, c->op, c->tag, &c->len) == -FI_EAGAIN)
			return false;
		peer->proto.ctl_head = c->next;
		if (!c->next)
			peer->proto.ctl_tail = &peer->proto.ctl_head;
		free(c);
		if (peer->proto.ctl_count <= IVS_CTL_MAX)
			peer->proto.ctl_count--;
	}
	return true;
}

struct ivs_tx *ivs_tx_get(struct ivs_ep *ep, struct ivs_peer *peer)
{
	struct ivs_tx *tx;
	uint32_t index;

	if (!ep->proto.tx_free_count) {
		size_t old = ep->proto.tx_table_size, size = old ? 2 * old : 64, i;
		struct ivs_tx **table;
		uint32_t *ids;

		if (size > IVS_TX_MAX)
			return NULL;
		table = realloc(ep->proto.tx_table, size * sizeof(*table));
		if (!table)
			return NULL;
		ep->proto.tx_table = table;
		ids = realloc(ep->proto.tx_free_ids, size * sizeof(*ids));
		if (!ids)
			return NULL;
		ep->proto.tx_free_ids = ids;
		for (i = size; i-- > old;) {
			table[i] = NULL;
			ids[ep->proto.tx_free_count++] = (uint32_t) i;
		}
		ep->proto.tx_table_size = size;
	}
	index = ep->proto.tx_free_ids[ep->proto.tx_free_count - 1];
	tx = ep->proto.tx_table[index];
	if (!tx) {
		tx = malloc(sizeof(*tx));
		if (!tx)
			return NULL;
		ep->proto.tx_table[index] = tx;
	}
	ep->proto.tx_free_count--;
	memset(tx, 0, sizeof(*tx));
	tx->id = ++ep->proto.tx_gen << 16 | index;
	tx->peer = peer;
	ivs_list_init(&tx->link);
	return tx;
}

struct ivs_tx *ivs_response_get(struct ivs_peer *peer)
{
	struct ivs_tx *tx = calloc(1, sizeof(*tx));

	if (!tx)
		return NULL;
	tx->peer = peer;
	tx->op = IVS_OP_RESULT;
	tx->response = true;
	tx->open = IVS_OPEN_READ;
	peer->proto.open_in[IVS_OPEN_READ]++;
	ivs_list_init(&tx->link);
	return tx;
}

void ivs_tx_put(struct ivs_ep *ep, struct ivs_tx *tx)
{
	if (tx->queued)
		ivs_list_del(&tx->link);
	if (tx->shown)
		ivs_shown_end(ep, tx);
	if (tx->core_mr)
		ivs_core_hide(tx);
	free(tx->own);
	if (tx->response) {
		tx->peer->proto.open_in[tx->open]--;
		free(tx);
		return;
	}
	if (tx->open)
		tx->peer->proto.open_out[tx->open]--;
	tx->own = NULL;
	tx->peer = NULL;
	ep->proto.tx_free_ids[ep->proto.tx_free_count++] = tx->id & 0xffff;
}

void ivs_tx_hide_all(struct ivs_ep *ep)
{
	size_t i;

	for (i = 0; i < ep->proto.tx_table_size; i++)
		if (ep->proto.tx_table[i] && ep->proto.tx_table[i]->core_mr)
			ivs_core_hide(ep->proto.tx_table[i]);
}

int ivs_proto_enable(struct ivs_ep *ep, uint32_t slots)
{
	if (!ep->proto.held_by_slot)
		ep->proto.held_by_slot = calloc(slots, sizeof(*ep->proto.held_by_slot));
	return ep->proto.held_by_slot ? 0 : -FI_ENOMEM;
}

void ivs_proto_free(struct ivs_ep *ep)
{
	size_t i;

	for (i = 0; i < ep->proto.tx_table_size; i++)
		free(ep->proto.tx_table[i]);
	free(ep->proto.tx_table);
	free(ep->proto.tx_free_ids);
	free(ep->proto.held_by_slot);
}

struct ivs_tx *ivs_tx_find(struct ivs_ep *ep, struct ivs_peer *peer, uint64_t id)
{
	struct ivs_tx *tx;

	if (id > UINT32_MAX || (id & 0xffff) >= ep->proto.tx_table_size)
		return NULL;
	tx = ep->proto.tx_table[id & 0xffff];
	return tx && tx->peer == peer && tx->id == id ? tx : NULL;
}

void ivs_tx_complete(struct ivs_ep *ep, struct ivs_tx *tx, int err)
{
	struct ivs_cntr *cntr = ep->cntr[tx->flags & FI_READ	? IVS_CNTR_READ
					 : tx->flags & FI_WRITE ? IVS_CNTR_WRITE
								: IVS_CNTR_SEND];

	if (!tx->response) {
		if (err) {
			ivs_cq_error(ep->tx_cq, tx->context, tx->flags & ~FI_COMPLETION, 0, NULL, 0, tx->tag, 0, err);
			ivs_cntr_fail(cntr);
		} else {
			if (tx->flags & FI_COMPLETION)
				ivs_cq_add(ep->tx_cq, tx->context, tx->flags & ~FI_COMPLETION, tx->total, NULL, 0,
					   tx->tag, FI_ADDR_NOTAVAIL);
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
	ivs_list_add(&peer->proto.waiting, &tx->link);
}

/*
 * Sends a piece of one request, if allowed. Several requests are interleaved: messages from or to the same memory find
 * more of it in the caches (1.2 times the bandwidth from 2 MiB on), and a short one need not wait for all of a long
 * one. Returns false if there is not enough room. Sets *more if the request has more to send.
 */
static bool pump(struct ivs_peer *peer, struct ivs_tx *tx, int *budget, bool *more)
{
	struct ivs_ep *ep = peer->ep;
	struct ivs_part part = { .id = tx->response ? tx->remote : tx->id, .status = tx->error };
	struct ivs_packet pkt = {
		.op = tx->response ? IVS_OP_RESULT : IVS_OP_DATA,
		.fixed = &part,
		.fixed_len = sizeof(part),
		.iov = tx->iov,
		.count = tx->count,
	};
	bool once = tx->response && (!tx->total || tx->error);
	size_t piece_len = ivs_select_piece(peer, tx->total);
	int ret;

	if (once || tx->sent < tx->total) {
		if (!tx->response && !tx->cts && tx->sent >= ivs_param.window)
			return true;
		if (!*budget)
			return false;
		pkt.len = tx->error ? 0 : tx->total - tx->sent;
		if (pkt.len > piece_len)
			pkt.len = piece_len;
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
			ivs_list_add(&peer->proto.sending, &tx->link);
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
	int budget = IVS_PUMP_MAX;
	bool more = false;

	if (peer->channel == IVS_CHAN_NONE && ivs_peer_connect(peer))
		return;
	if (!flush_ctl(peer))
		return;
	ivs_list_each_safe(pos, tmp, &peer->proto.sending) {
		struct ivs_tx *tx = ivs_entry(pos, struct ivs_tx, link);

		if (!pump(peer, tx, &budget, &more)) {
			more = true;
			break;
		}
	}
	/* Requests that wait for a CTS activate the peer again. */
	if (!more && !peer->proto.ctl_head && !peer->condemned)
		ivs_peer_deactivate(peer);
}

void ivs_tx_start(struct ivs_peer *peer, struct ivs_tx *tx)
{
	if (tx->queued)
		ivs_list_del(&tx->link);
	tx->queued = true;
	ivs_list_add(&peer->proto.sending, &tx->link);
	ivs_peer_activate(peer);
	ivs_peer_pump(peer);
}

/* Stores what the completion of tx will report. */
static inline void describe(struct ivs_tx *tx, uint8_t op, size_t len, uint64_t tag, void *context, uint64_t flags)
{
	tx->op = op;
	tx->total = len;
	tx->tag = tag;
	tx->context = context;
	tx->flags = flags & (FI_COMPLETION | FI_SEND | FI_MSG | FI_TAGGED);
}

/* Announces a message. Returns 0 or a negative error, -FI_ENOSYS if it has to be sent instead. */
static ssize_t send_rts(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, const struct iovec *iov, size_t count,
			size_t len, uint64_t tag, uint64_t data, void *context, uint64_t flags, uint8_t rts)
{
	struct ivs_rendezvous_read head;
	struct ivs_packet pkt = {
		.op = op == IVS_OP_TAGGED ? IVS_OP_TAGGED_RTS : IVS_OP_MSG_RTS,
		.flags = rts | (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0),
		.tag = tag,
		.fixed = &head,
		.fixed_len = sizeof(head),
	};
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	size_t i;
	bool alone = ivs_list_empty(&peer->proto.waiting);
	int ret;

	if (!tx)
		return -FI_EAGAIN;
	if (!(rts & IVS_F_REGION) && !ivs_shown_begin(ep, peer, tx, iov, count)) {
		ivs_tx_put(ep, tx);
		return -FI_ENOSYS;
	}
	if (rts & IVS_F_REGION)
		memset(head.iov, 0, sizeof(head.iov));
	head.total = len;
	head.data = data;
	head.id = tx->id;
	head.count = 0;
	for (i = 0; i < count; i++) {
		/* Addresses are not written to the region, which other VMs read. */
		if (rts & IVS_F_REGION) {
			head.iov[i].addr = (uint64_t) ivs_region_offset(ep, iov[i].iov_base, iov[i].iov_len);
			head.iov[i].len = iov[i].iov_len;
			head.count++;
		}
		tx->iov[i] = iov[i];
	}
	if (alone && !(rts & IVS_F_REGION) && len < IVS_CMA_POLICY_SURE)
		tx->begun = ivs_cycles();
	if (likely(!(rts & IVS_F_REGION)))
		ret = ivs_ring_send_head(&peer->ring, pkt.op, pkt.flags, tag, &head, IVS_RTS_SHOWN_BYTES) ? 0
													  : -FI_EAGAIN;
	else
		ret = ivs_packet_send(peer, &pkt);
	if (ret) {
		ivs_tx_put(ep, tx);
		return ret;
	}
	describe(tx, pkt.op, len, tag, context, flags);
	tx->count = count;
	tx->ack = true;
	ivs_ack_later(peer, tx);
	if (!(rts & IVS_F_REGION)) {
		if (unlikely(ep->proto.traffic))
			ivs_traffic_announced(peer, len, true);
		/* Generate the next numbers while the receiver reads this message. */
		ivs_numbers_ready(&ep->proto.shown);
	}
	return 0;
}

/*
 * Announces a message to a rank on another host. Returns 0 or a negative error, -FI_ENOSYS if it has to be sent
 * instead.
 */
static ssize_t send_core_rts(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, const struct iovec *iov, size_t len,
			     uint64_t tag, uint64_t data, void *context, uint64_t flags)
{
	struct ivs_core_rts head = { .total = len, .data = data };
	struct ivs_packet pkt = {
		.op = op == IVS_OP_TAGGED ? IVS_OP_TAGGED_RTS : IVS_OP_MSG_RTS,
		.flags = IVS_F_CORE | (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0),
		.tag = tag,
		.fixed = &head,
		.fixed_len = sizeof(head),
	};
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	int ret;

	if (!tx)
		return -FI_EAGAIN;
	head.id = tx->id;
	ret = ivs_core_show(ep, tx, iov->iov_base, len, &head) ? ivs_packet_send(peer, &pkt) : -FI_ENOSYS;
	if (ret) {
		ivs_tx_put(ep, tx);
		return ret;
	}
	describe(tx, pkt.op, len, tag, context, flags);
	tx->iov[0] = *iov;
	tx->count = 1;
	tx->ack = true;
	ivs_ack_later(peer, tx);
	return 0;
}

static ssize_t send_pieces(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op, const struct iovec *iov, size_t count,
			   size_t len, uint64_t tag, uint64_t data, void *context, uint64_t flags)
{
	struct ivs_long head = { .total = len, .data = data };
	struct ivs_packet pkt = {
		.op = op == IVS_OP_TAGGED ? IVS_OP_TAGGED_LONG : IVS_OP_MSG_LONG,
		.flags = (flags & FI_REMOTE_CQ_DATA ? IVS_F_DATA : 0) | (flags & FI_DELIVERY_COMPLETE ? IVS_F_ACK : 0) |
			 (len > ivs_param.window ? IVS_F_CTS : 0),
		.tag = tag,
		.fixed = &head,
		.fixed_len = sizeof(head),
		.iov = iov,
		.count = count,
		.len = ivs_select_piece(peer, len),
	};
	struct ivs_tx *tx = ivs_tx_get(ep, peer);
	int ret;

	if (!tx)
		return -FI_EAGAIN;
	head.id = tx->id;
	ret = ivs_packet_send(peer, &pkt);
	if (ret == -FI_EAGAIN) {
		/* No buffer is free: send only the start, and the bytes when there is one. */
		pkt.len = 0;
		ret = ivs_packet_send(peer, &pkt);
	}
	if (ret) {
		ivs_tx_put(ep, tx);
		return ret;
	}
	describe(tx, pkt.op, len, tag, context, flags);
	memcpy(tx->iov, iov, count * sizeof(*iov));
	tx->count = count;
	tx->sent = pkt.len;
	tx->ack = flags & FI_DELIVERY_COMPLETE;
	tx->cts = !(pkt.flags & IVS_F_CTS);
	ivs_tx_start(peer, tx);
	return 0;
}

/* Completes a send that needs no further work: the receiver has it, or will. */
static inline void sent(struct ivs_ep *ep, size_t len, uint64_t tag, void *context, uint64_t flags)
{
	if (flags & FI_COMPLETION)
		ivs_cq_add(ep->tx_cq, context, flags & (FI_SEND | FI_MSG | FI_TAGGED), len, NULL, 0, tag,
			   FI_ADDR_NOTAVAIL);
	ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
}

/* Inline: passing its eleven arguments would cost 50 instructions per message. */
static inline __attribute__((always_inline)) ssize_t send_whole(struct ivs_ep *ep, struct ivs_peer *peer, uint8_t op,
								const struct iovec *iov, size_t count, size_t len,
								uint64_t tag, uint64_t data, void *context,
								uint64_t flags)
{
	struct ivs_packet pkt;
	uint64_t fixed[2];
	struct ivs_tx *tx = NULL;
	int ret;

	pkt.op = op;
	pkt.flags = 0;
	pkt.tag = tag;
	pkt.fixed = fixed;
	pkt.fixed_len = 0;
	pkt.iov = iov;
	pkt.count = count;
	pkt.offset = 0;
	pkt.len = len;
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
		describe(tx, op, len, tag, context, flags);
		tx->ack = true;
		ivs_ack_later(peer, tx);
		return 0;
	}
	sent(ep, len, tag, context, flags);
	return 0;
}

ssize_t ivs_send(struct ivs_ep *ep, uint8_t op, const struct iovec *iov, size_t count, fi_addr_t dest, uint64_t tag,
		 uint64_t data, void *context, uint64_t flags)
{
	struct ivs_peer *peer;
	ssize_t announced;
	size_t len;
	uint8_t rts = 0;
	int ret = 0;

	if (unlikely(ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD))
		return -FI_EAGAIN;
	peer = ivs_peer_get(ep, dest, &ret);
	if (unlikely(!peer))
		return ret;
	flags |= FI_SEND | (op == IVS_OP_TAGGED ? FI_TAGGED : FI_MSG);
	if (likely(count == 1 && ivs_select_eager(peer, iov->iov_len, flags))) {
		if (unlikely(!ivs_eager_send(&peer->ring, op, tag, flags & FI_REMOTE_CQ_DATA ? &data : NULL,
					     iov->iov_base, iov->iov_len)))
			return -FI_EAGAIN;
		sent(ep, iov->iov_len, tag, context, flags);
		return 0;
	}
	len = ivs_iov_bytes(iov, count);
	switch (ivs_select_send(peer, op, iov, count, len, flags, &rts)) {
	case IVS_SEND_PASSTHROUGH: return ivs_passthrough_send(peer, iov, count, len, tag, data, context, flags);
	case IVS_SEND_READ:
		announced = send_rts(ep, peer, op, iov, count, len, tag, data, context, flags, rts);
		if (likely(announced != -FI_ENOSYS))
			return announced;
		break;
	case IVS_SEND_CORE_READ:
		announced = send_core_rts(ep, peer, op, iov, len, tag, data, context, flags);
		if (likely(announced != -FI_ENOSYS))
			return announced;
		break;
	case IVS_SEND_TOO_LONG: return -FI_EMSGSIZE;
	default: break;
	}
	if (len > peer->piece)
		return send_pieces(ep, peer, op, iov, count, len, tag, data, context, flags);
	return send_whole(ep, peer, op, iov, count, len, tag, data, context, flags);
}
