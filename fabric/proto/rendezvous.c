/* Messages with a known receive: read from their sender, requested, and completed. */
#include "proto/coop_copy.h"
#include "proto/select.h"
#include "proto/shown.h"
#include "remote/fetch.h"
#include "ring/copy.h"

void ivs_msg_free(struct ivs_ep *ep, struct ivs_msg *msg)
{
	if (msg->queued || msg->claimed) {
		ivs_list_del(&msg->link);
		msg->queued = msg->claimed = false;
	}
	if (msg->streaming)
		ivs_list_del(&msg->stream);
	if (unlikely(msg->fetch))
		ivs_core_fetch_forget(msg);
	if (msg->op == IVS_OP_WRITE)
		msg->peer->proto.open_in[IVS_OPEN_WRITE]--;
	ep->proto.ux_bytes -= msg->charged;
	*msg->peer->proto.held -= msg->charged;
	free(msg->buf);
	free(msg);
}

/* Returns true for the announcement of a message in its sender's memory. */
static bool is_shown(const struct ivs_msg *msg)
{
	return (msg->op == IVS_OP_TAGGED_RTS || msg->op == IVS_OP_MSG_RTS) &&
	       !(msg->flags & (IVS_F_REGION | IVS_F_CORE));
}

static void answer_shown(const struct ivs_msg *msg, uint8_t op)
{
	ivs_ctl_send(msg->peer, op, ivs_shown_answer(msg->peer, op, msg->id, msg->number));
}

void ivs_msg_ack(const struct ivs_msg *msg)
{
	if (!(msg->flags & IVS_F_ACK))
		return;
	if (is_shown(msg))
		answer_shown(msg, IVS_OP_SHOWN_ACK);
	else
		ivs_ctl_send(msg->peer, IVS_OP_ACK, msg->id);
}

/* Completes a message that has arrived as a whole and whose receive is known. */
static void finish(struct ivs_ep *ep, struct ivs_msg *msg, int err)
{
	struct ivs_peer *peer = msg->peer;

	if (peer->channel != IVS_CHAN_DEAD)
		ivs_msg_ack(msg);
	ivs_rx_complete(ep, msg->rx, ivs_msg_tagged(msg), peer, msg->total, msg->tag, msg->flags & IVS_F_DATA,
			msg->data, err);
	msg->rx = NULL;
	ivs_msg_free(ep, msg);
}

/* Requests the message in pieces, because the kernel does not allow reading it. */
static void send_cts(struct ivs_msg *msg)
{
	if (is_shown(msg))
		answer_shown(msg, IVS_OP_SHOWN_CTS);
	else
		ivs_ctl_send(msg->peer, IVS_OP_CTS, msg->id);
	/* From now on it is an ordinary long message. */
	msg->op = ivs_msg_tagged(msg) ? IVS_OP_TAGGED_LONG : IVS_OP_MSG_LONG;
	msg->error = 0;
	msg->streaming = true;
	ivs_list_add(&msg->peer->proto.streams, &msg->stream);
	msg->asked = true;
}

/* Ends the reading of an announced message; err: not 0 if it could not be read. */
static void read_over(struct ivs_ep *ep, struct ivs_msg *msg, int err)
{
	if (err) {
		send_cts(msg);
		return;
	}
	if (is_shown(msg) && !ivs_shown_holds(msg->peer, msg->id, msg->number)) {
		/* The sender has ended it in the meantime: the bytes read may be others. */
		msg->flags &= (uint8_t) ~IVS_F_ACK;
		err = FI_EIO;
	}
	finish(ep, msg, err);
}

/* Reads a message that its sender only announced. */
static void rendezvous_read(struct ivs_ep *ep, struct ivs_msg *msg)
{
	struct ivs_rx *rx = msg->rx;
	size_t len = msg->total < rx->len ? msg->total : rx->len, i;
	struct ivs_region *r = ep->domain->region;
	int err = 0, count;

	/* It may have been queued since its first lookup, and its sender may have ended it. */
	if (is_shown(msg) && msg->peer->channel != IVS_CHAN_DEAD) {
		count = ivs_shown_find(msg->peer, msg->id, msg->total, msg->iov, &msg->number);
		msg->niov = count > 0 ? (uint32_t) count : 0;
		if (count < 0)
			ivs_peer_condemn(msg->peer);
	}
	switch (ivs_select_read(msg->peer, msg->flags, msg->niov, rx, len)) {
	case IVS_READ_FAILS:
		/* Its memory may belong to another process by now. */
		finish(ep, msg, FI_EIO);
		return;
	case IVS_READ_REGION:
		for (i = 0; i < msg->niov && msg->got < len; i++)
			msg->got += ivs_iov_scatter(rx->iov, rx->count, msg->got,
						    r->base + (uintptr_t) msg->iov[i].iov_base, msg->iov[i].iov_len);
		break;
	case IVS_READ_COOP:
		err = ivs_coop_read(msg, len);
		if (err == -FI_EINPROGRESS) {
			msg->streaming = true;
			ivs_list_add(&msg->peer->proto.streams, &msg->stream);
			return;
		}
		break;
	case IVS_READ_CORE:
		if (!len)
			break;
		if (ivs_core_fetch(msg, len)) {
			msg->streaming = true;
			ivs_list_add(&msg->peer->proto.streams, &msg->stream);
			return;
		}
		err = -FI_EPERM;
		break;
	case IVS_READ_CTS: err = -FI_EPERM; break;
	case IVS_READ_CMA: err = ivs_cma(msg->peer, false, rx->iov, rx->count, msg->iov, msg->niov, len);
	}
	read_over(ep, msg, err);
}

void ivs_core_fetched(struct ivs_msg *msg, int err)
{
	struct ivs_peer *peer = msg->peer;

	ivs_list_del(&msg->stream);
	msg->streaming = false;
	/* The peer is gone, or has ended the message. */
	if (err && err != FI_EAGAIN)
		ivs_peer_condemn(peer);
	if (peer->channel == IVS_CHAN_DEAD)
		finish(peer->ep, msg, FI_EIO);
	else
		read_over(peer->ep, msg, err);
}

void ivs_msg_coop_end(struct ivs_ep *ep, struct ivs_peer *peer, uint32_t id)
{
	struct ivs_list *pos;
	int err;

	ivs_list_each(pos, &peer->proto.streams) {
		struct ivs_msg *msg = ivs_entry(pos, struct ivs_msg, stream);

		if (msg->id != id || !msg->coop)
			continue;
		err = ivs_coop_end(msg, msg->total < msg->rx->len ? msg->total : msg->rx->len);
		/* Another VM sent this: the message's sender is still writing. */
		if (err == -FI_EINPROGRESS)
			return;
		ivs_list_del(&msg->stream);
		msg->streaming = false;
		read_over(ep, msg, err);
		return;
	}
	/* The message was read completely before: nothing to do. */
}

void ivs_msg_attach(struct ivs_ep *ep, struct ivs_msg *msg, struct ivs_rx *rx)
{
	if (msg->queued || msg->claimed) {
		ivs_list_del(&msg->link);
		msg->queued = msg->claimed = false;
	}
	if (unlikely(rx->flags & FI_MULTI_RECV && !rx->parent)) {
		/* Posted for many messages; this one gets its part. */
		struct ivs_queue one = { rx, &rx->next };

		rx = ivs_match_posted(ep, &one, false, msg->peer, 0, msg->total);
		if (!rx) {
			ivs_msg_free(ep, msg);
			return;
		}
	}
	msg->rx = rx;
	if (msg->op == IVS_OP_TAGGED_RTS || msg->op == IVS_OP_MSG_RTS) {
		rendezvous_read(ep, msg);
		return;
	}
	ep->proto.ux_bytes -= msg->charged;
	*msg->peer->proto.held -= msg->charged;
	msg->charged = 0;
	if (msg->got) {
		ivs_iov_scatter(rx->iov, rx->count, 0, msg->buf, msg->got);
		msg->held = 0;
		free(msg->buf);
		msg->buf = NULL;
	}
	if (msg->got == msg->total) {
		finish(ep, msg, msg->error);
		return;
	}
	if (msg->flags & IVS_F_CTS && !msg->asked) {
		msg->asked = true;
		ivs_ctl_send(msg->peer, IVS_OP_CTS, msg->id);
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

			/* Keep the buffer during the call: parts may complete at once. */
			rx->busy++;
			ivs_msg_attach(ep, msg, rx);
			rx->busy--;
			last = rx->done;
			if (last) {
				if (!rx->busy) {
					/* The last part has completed: report that the buffer is free. */
					ivs_cq_add(ep->rx_cq, rx->context, FI_MULTI_RECV | FI_RECV | FI_MSG, 0, NULL, 0,
						   0, FI_ADDR_NOTAVAIL);
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
		ivs_cq_error(ep->rx_cq, rx->context, FI_RECV | (tagged ? FI_TAGGED : FI_MSG), 0, rx->iov[0].iov_base, 0,
			     rx->tag, 0, FI_EIO);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
		ivs_rx_put(ep, rx);
		return;
	}
	rx->next = NULL;
	*q->tail = rx;
	q->tail = &rx->next;
}
