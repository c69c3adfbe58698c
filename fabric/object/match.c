/* Matches posted receives with messages that have arrived. */
#include <stdlib.h>

#include "object/match.h"
#include "base/message.h"

struct ivs_rx *ivs_rx_get(struct ivs_ep *ep)
{
	struct ivs_rx *rx = ep->rx_free;
	int i;

	if (unlikely(!rx)) {
		/* Blocks are freed only when the endpoint closes. */
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

/* Allocates the part of a multi-receive buffer for a message of total bytes. */
static struct ivs_rx *multi_part(struct ivs_ep *ep, struct ivs_queue *q, struct ivs_rx **at, size_t total)
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

struct ivs_rx *ivs_match_posted(struct ivs_ep *ep, struct ivs_queue *q, bool tagged, struct ivs_peer *peer,
				uint64_t tag, size_t total)
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

struct ivs_msg *ivs_match_unexpected(struct ivs_list *ux, bool tagged, struct ivs_peer *peer, uint64_t tag,
				     uint64_t ignore)
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

void ivs_rx_complete(struct ivs_ep *ep, struct ivs_rx *rx, bool tagged, struct ivs_peer *peer, size_t total,
		     uint64_t tag, bool has_data, uint64_t data, int err)
{
	uint64_t flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (has_data ? FI_REMOTE_CQ_DATA : 0);
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
	return msg->op == IVS_OP_TAGGED || msg->op == IVS_OP_TAGGED_LONG || msg->op == IVS_OP_TAGGED_RTS;
}
