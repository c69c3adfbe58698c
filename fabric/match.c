/* Receives that wait for messages, and messages that wait for receives. */
#include "joint.h"

struct ivs_rx *ivs_rx_get(struct ivs_ep *ep)
{
	struct ivs_rx *rx = ep->rx_free;
	int i;

	if (unlikely(!rx)) {
		/* Never given back before the endpoint closes. */
		struct ivs_rx *block = calloc(65, sizeof(*block));

		if (!block)
			return NULL;
		block[0].next = ep->rx_blocks;
		ep->rx_blocks = block;
		for (i = 1; i <= 64; i++) {
			block[i].next = rx;
			rx = &block[i];
		}
	}
	ep->rx_free = rx->next;
	rx->next = NULL;
	return rx;
}

void ivs_rx_put(struct ivs_ep *ep, struct ivs_rx *rx)
{
	rx->next = ep->rx_free;
	ep->rx_free = rx;
}

/* The part of a multi-receive buffer that a message of total bytes gets. */
static struct ivs_rx *multi_part(struct ivs_ep *ep, struct ivs_queue *q, struct ivs_rx **at,
				 size_t total)
{
	struct ivs_rx *buf = *at, *part = ivs_rx_get(ep);
	size_t left = buf->len - buf->used;

	if (!part)
		return NULL;
	part->context = buf->context;
	part->flags = buf->flags & ~FI_MULTI_RECV;
	part->tag = 0;
	part->peer = buf->peer;
	part->parent = buf;
	part->len = total < left ? total : left;
	part->count = 1;
	part->iov[0].iov_base = (char *) buf->iov[0].iov_base + buf->used;
	part->iov[0].iov_len = part->len;
	buf->used += part->len;
	buf->busy++;
	if (buf->len - buf->used < ep->min_multi_recv || buf->used == buf->len) {
		buf->done = true;
		*at = buf->next;
		if (!buf->next)
			q->tail = at;
	}
	return part;
}

struct ivs_rx *ivs_match_posted(struct ivs_ep *ep, struct ivs_queue *q, bool tagged,
				struct ivs_peer *peer, uint64_t tag, size_t total)
{
	struct ivs_rx **at = &q->head, *rx;

	for (; (rx = *at); at = &rx->next) {
		if (rx->peer && rx->peer != peer)
			continue;
		if (tagged) {
			if ((rx->tag ^ tag) & ~rx->ignore)
				continue;
		} else if (unlikely(rx->flags & FI_MULTI_RECV)) {
			return multi_part(ep, q, at, total);
		}
		*at = rx->next;
		if (!rx->next)
			q->tail = at;
		return rx;
	}
	return NULL;
}

struct ivs_msg *ivs_match_unexpected(struct ivs_list *ux, bool tagged,
				     struct ivs_peer *peer, uint64_t tag, uint64_t ignore)
{
	struct ivs_list *pos;

	ivs_list_each(pos, ux) {
		struct ivs_msg *msg = ivs_entry(pos, struct ivs_msg, link);

		if (peer && msg->peer != peer)
			continue;
		if (tagged && (msg->tag ^ tag) & ~ignore)
			continue;
		return msg;
	}
	return NULL;
}

void ivs_rx_complete(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged,
		     struct ivs_peer *peer, size_t total, uint64_t tag, bool has_data,
		     uint64_t data, int err)
{
	uint64_t flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) |
			 (has_data ? FI_REMOTE_CQ_DATA : 0);
	size_t len = total;
	void *buf = rx->iov[0].iov_base;

	if (unlikely(total > rx->len)) {
		len = rx->len;
		if (!err)
			err = FI_ETRUNC;
	}
	if (unlikely(rx->parent != NULL)) {
		struct ivs_rx *parent = rx->parent;

		if (!--parent->busy && parent->done) {
			flags |= FI_MULTI_RECV;
			ivs_rx_put(ep, parent);
		}
	}
	if (unlikely(err)) {
		ivs_cq_error(ep->rx_cq, rx->context, flags, len, buf, data, tag, total - len, err);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
	} else {
		if (rx->flags & FI_COMPLETION || flags & FI_MULTI_RECV)
			ivs_cq_add(ep->rx_cq, rx->context, flags, len, buf, data, tag,
				   peer ? peer->fi_addr : FI_ADDR_NOTAVAIL);
		ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], len);
	}
	ivs_rx_put(ep, rx);
}

bool ivs_msg_tagged(const struct ivs_msg *msg)
{
	return msg->op == IVS_OP_TAGGED || msg->op == IVS_OP_TAGGED_LONG ||
	       msg->op == IVS_OP_TAGGED_PULL;
}

void ivs_msg_free(struct ivs_ep *ep, struct ivs_msg *msg)
{
	if (msg->queued || msg->claimed) {
		ivs_list_del(&msg->link);
		msg->queued = msg->claimed = false;
	}
	if (msg->streaming)
		ivs_list_del(&msg->stream);
	ep->ux_bytes -= msg->held;
	free(msg->buf);
	free(msg);
}

/* The whole of a message has come and its receive is known. */
static void finish(struct ivs_ep *ep, struct ivs_msg *msg, int err)
{
	struct ivs_peer *peer = msg->peer;

	if (msg->flags & IVS_F_ACK && peer->channel != IVS_CHAN_DEAD)
		ivs_ctl_send(peer, IVS_OP_ACK, msg->id);
	ivs_rx_complete(ep, msg->rx, ivs_msg_tagged(msg), peer, msg->total, msg->tag,
			msg->flags & IVS_F_DATA, msg->data, err);
	msg->rx = NULL;
	ivs_msg_free(ep, msg);
}

/* The kernel does not let us read it: it comes in pieces after all. */
static void ask(struct ivs_msg *msg)
{
	msg->op = ivs_msg_tagged(msg) ? IVS_OP_TAGGED_LONG : IVS_OP_MSG_LONG;
	msg->error = 0;
	msg->streaming = true;
	ivs_list_add(&msg->peer->streams, &msg->stream);
	msg->asked = true;
	ivs_ctl_send(msg->peer, IVS_OP_CLEAR, msg->id);
}

/* Reads a message that its sender only showed us. */
static void pull(struct ivs_ep *ep, struct ivs_msg *msg)
{
	struct ivs_rx *rx = msg->rx;
	size_t len = msg->total < rx->len ? msg->total : rx->len, i;
	struct ivs_region *r = ep->domain->region;
	int err = 0;

	if (msg->peer->channel == IVS_CHAN_DEAD) {
		/* Its memory may be somebody else's by now. */
		finish(ep, msg, FI_EIO);
		return;
	}
	if (msg->flags & IVS_F_REGION) {
		for (i = 0; i < msg->niov && msg->got < len; i++)
			msg->got += ivs_iov_scatter(rx->iov, rx->count, msg->got,
						    r->base + (uintptr_t) msg->iov[i].iov_base,
						    msg->iov[i].iov_len);
	} else if (msg->flags & IVS_F_JOINT && rx->count == 1 && msg->niov == 1 &&
		   msg->peer->rx_ctl && ivs_joint_fits(msg->peer, len)) {
		err = ivs_joint_read(msg, len);
		if (err == -FI_EINPROGRESS) {
			msg->streaming = true;
			ivs_list_add(&msg->peer->streams, &msg->stream);
			return;
		}
	} else {
		err = ivs_cma(msg->peer, false, rx->iov, rx->count, msg->iov, msg->niov, len);
	}
	if (err)
		ask(msg);
	else
		finish(ep, msg, 0);
}

bool ivs_msg_joined(struct ivs_ep *ep, struct ivs_peer *peer, uint32_t id, uint32_t done)
{
	struct ivs_list *pos;

	ivs_list_each(pos, &peer->streams) {
		struct ivs_msg *msg = ivs_entry(pos, struct ivs_msg, stream);

		if (msg->id != id || !msg->joint)
			continue;
		if (done > msg->joint)
			return false;
		ivs_list_del(&msg->stream);
		msg->streaming = false;
		if (ivs_joint_end(msg, msg->total < msg->rx->len ? msg->total : msg->rx->len, done))
			ask(msg);
		else
			finish(ep, msg, 0);
		return true;
	}
	/* It came when all was read. */
	return !done;
}

void ivs_msg_attach(struct ivs_ep *ep, struct ivs_msg *msg, struct ivs_rx *rx)
{
	if (msg->queued || msg->claimed) {
		ivs_list_del(&msg->link);
		msg->queued = msg->claimed = false;
	}
	if (unlikely(rx->flags & FI_MULTI_RECV && !rx->parent)) {
		/* Posted for many; this message gets its part of it. */
		struct ivs_queue one = { rx, &rx->next };

		rx = ivs_match_posted(ep, &one, false, msg->peer, 0, msg->total);
		if (!rx) {
			ivs_msg_free(ep, msg);
			return;
		}
	}
	msg->rx = rx;
	if (msg->op == IVS_OP_TAGGED_PULL || msg->op == IVS_OP_MSG_PULL) {
		pull(ep, msg);
		return;
	}
	if (msg->got) {
		ivs_iov_scatter(rx->iov, rx->count, 0, msg->buf, msg->got);
		ep->ux_bytes -= msg->held;
		msg->held = 0;
		free(msg->buf);
		msg->buf = NULL;
	}
	if (msg->got == msg->total) {
		finish(ep, msg, msg->error);
		return;
	}
	if (msg->flags & IVS_F_CLEAR && !msg->asked) {
		msg->asked = true;
		ivs_ctl_send(msg->peer, IVS_OP_CLEAR, msg->id);
	}
}

void ivs_rx_post(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged)
{
	struct ivs_queue *q = tagged ? &ep->tagged : &ep->msg;
	struct ivs_list *ux = tagged ? &ep->ux_tagged : &ep->ux_msg;
	struct ivs_msg *msg;

	while (unlikely(!ivs_list_empty(ux))) {
		msg = ivs_match_unexpected(ux, tagged, rx->peer, rx->tag, rx->ignore);
		if (!msg)
			break;
		if (rx->flags & FI_MULTI_RECV) {
			bool last;

			/* Kept while it is looked into: parts may complete at once. */
			rx->busy++;
			ivs_msg_attach(ep, msg, rx);
			rx->busy--;
			last = rx->done;
			if (last) {
				if (!rx->busy) {
					/* The last part has completed; say that the buffer is free. */
					ivs_cq_add(ep->rx_cq, rx->context, FI_MULTI_RECV | FI_RECV |
						   FI_MSG, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
					ivs_rx_put(ep, rx);
				}
				return;
			}
			continue;
		}
		ivs_msg_attach(ep, msg, rx);
		return;
	}
	if (unlikely(rx->peer && rx->peer->channel == IVS_CHAN_DEAD)) {
		ivs_cq_error(ep->rx_cq, rx->context, FI_RECV | (tagged ? FI_TAGGED : FI_MSG), 0,
			     rx->iov[0].iov_base, 0, rx->tag, 0, FI_EIO);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
		ivs_rx_put(ep, rx);
		return;
	}
	rx->next = NULL;
	*q->tail = rx;
	q->tail = &rx->next;
}
