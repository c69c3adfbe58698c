/* The calls of fi_tagged. */
#include "ofi/open.h"
#include "proto/eager_send.h"
#include "proto/proto.h"
#include "proto/traffic.h"
#include "remote/passthrough.h"

/* Allocates a receive and sets all but its buffers. Returns NULL with the error in *ret. */
static inline struct ivs_rx *prepare(struct ivs_ep *ep, fi_addr_t src, uint64_t tag, uint64_t ignore, void *context,
				     uint64_t flags, ssize_t *ret)
{
	struct ivs_peer *peer = NULL;
	struct ivs_rx *rx;
	int err;

	if (src != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		peer = src < ep->peers_size ? ep->peers[src] : NULL;
		if (unlikely(!peer)) {
			peer = ivs_peer_lookup(ep, src, &err);
			if (!peer) {
				*ret = err;
				return NULL;
			}
		}
	}
	rx = ivs_rx_get(ep);
	if (unlikely(!rx)) {
		*ret = -FI_ENOMEM;
		return NULL;
	}
	rx->tag = tag;
	rx->ignore = ignore;
	rx->peer = peer;
	rx->context = context;
	rx->flags = flags & ~FI_MULTI_RECV;
	rx->parent = NULL;
	rx->busy = 0;
	return rx;
}

static ssize_t post(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src, uint64_t tag,
		    uint64_t ignore, void *context, uint64_t flags)
{
	struct ivs_rx *rx;
	ssize_t ret;

	if (unlikely(ep->passthrough))
		return ivs_passthrough_recv(ep, iov, count, src, tag, ignore, context, flags);
	rx = prepare(ep, src, tag, ignore, context, flags, &ret);
	if (unlikely(!rx))
		return ret;
	rx->count = count;
	rx->len = 0;
	rx->iov[0].iov_base = NULL;
	for (size_t i = 0; i < count; i++) {
		rx->iov[i] = iov[i];
		rx->len += iov[i].iov_len;
	}
	ivs_rx_post(ep, rx, true);
	return 0;
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t src,
			    uint64_t tag, uint64_t ignore, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	(void) desc;
	if (unlikely(count > IVS_IOV_MAX))
		return -FI_EINVAL;
	ivs_lock(ep->domain);
	ret = post(ep, iov, count, src, tag, ignore, context, ep->rx_comp | ep->rx_flags);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t src, uint64_t tag,
			   uint64_t ignore, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	uint64_t flags = ep->rx_comp | ep->rx_flags;
	struct iovec iov;
	struct ivs_rx *rx;
	ssize_t ret = 0;

	(void) desc;
	ivs_lock(ep->domain);
	if (unlikely(ep->passthrough)) {
		iov.iov_base = buf;
		iov.iov_len = len;
		ret = post(ep, &iov, 1, src, tag, ignore, context, flags);
	} else {
		/* Not by way of an iov: copying it would wait until both halves are stored. */
		rx = prepare(ep, src, tag, ignore, context, flags, &ret);
		if (likely(rx != NULL)) {
			rx->count = 1;
			rx->len = len;
			rx->iov[0].iov_base = buf;
			rx->iov[0].iov_len = len;
			ivs_rx_post(ep, rx, true);
		}
	}
	ivs_unlock(ep->domain);
	return ret;
}

/* Discards a message that is, or is going to be, unexpected. */
static ssize_t discard(struct ivs_ep *ep, struct ivs_msg *msg, void *context, uint64_t flags)
{
	struct ivs_rx *rx = ivs_rx_get(ep);

	if (!rx)
		return -FI_ENOMEM;
	memset(rx, 0, sizeof(*rx));
	rx->context = context;
	rx->flags = flags & FI_COMPLETION;
	/* No buffers, but the message's length, so that it is not reported as truncated. */
	rx->len = msg->total;
	if (msg->op == IVS_OP_TAGGED_RTS) {
		ivs_msg_ack(msg);
		ivs_rx_complete(ep, rx, true, msg->peer, msg->total, msg->tag, msg->flags & IVS_F_DATA, msg->data, 0);
		ivs_msg_free(ep, msg);
		return 0;
	}
	ivs_msg_attach(ep, msg, rx);
	return 0;
}

/* Finds a message without receiving it. A claimed one is kept for its receive. */
static ssize_t peek(struct ivs_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	struct ivs_peer *peer = NULL;
	struct ivs_msg *msg;
	int err = 0;

	if (m->addr != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		peer = ivs_peer_lookup(ep, m->addr, &err);
		if (!peer && err != -FI_EAGAIN)
			return err;
	}
	ivs_domain_progress(ep->domain);
	msg = err ? NULL : ivs_match_unexpected(&ep->ux_tagged, true, peer, m->tag, m->ignore);
	if (!msg) {
		ivs_cq_error(ep->rx_cq, m->context, FI_RECV | FI_TAGGED, 0, NULL, 0, m->tag, 0, FI_ENOMSG);
		return 0;
	}
	if (flags & FI_CLAIM) {
		ivs_list_del(&msg->link);
		msg->queued = false;
		msg->claimed = true;
		ivs_list_add(&ep->claimed, &msg->link);
		((struct fi_context *) m->context)->internal[0] = msg;
	} else if (flags & FI_DISCARD) {
		return discard(ep, msg, m->context, flags | ep->rx_comp);
	}
	ivs_cq_add(ep->rx_cq, m->context, FI_RECV | FI_TAGGED | (msg->flags & IVS_F_DATA ? FI_REMOTE_CQ_DATA : 0),
		   msg->total, NULL, msg->data, msg->tag, msg->peer->fi_addr);
	return 0;
}

static ssize_t claim(struct ivs_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	struct ivs_msg *msg = ((struct fi_context *) m->context)->internal[0], *found = NULL;
	struct ivs_list *pos;
	struct ivs_rx *rx;

	ivs_list_each(pos, &ep->claimed)
		if (ivs_entry(pos, struct ivs_msg, link) == msg)
			found = msg;
	if (!found)
		return -FI_EINVAL;
	if (flags & FI_DISCARD)
		return discard(ep, msg, m->context, flags | ep->rx_comp);
	rx = ivs_rx_get(ep);
	if (!rx)
		return -FI_ENOMEM;
	memset(rx, 0, sizeof(*rx));
	rx->context = m->context;
	rx->flags = (flags | ep->rx_comp) & FI_COMPLETION;
	rx->count = m->iov_count;
	for (size_t i = 0; i < m->iov_count; i++) {
		rx->iov[i] = m->msg_iov[i];
		rx->len += rx->iov[i].iov_len;
	}
	ivs_msg_attach(ep, msg, rx);
	return 0;
}

static ssize_t tagged_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	if (unlikely(msg->iov_count > IVS_IOV_MAX))
		return -FI_EINVAL;
	ivs_lock(ep->domain);
	if (ep->passthrough)
		ret = ivs_passthrough_recv(ep, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore,
					   msg->context, flags | ep->rx_comp);
	else if (flags & FI_PEEK)
		ret = peek(ep, msg, flags);
	else if (flags & FI_CLAIM)
		ret = claim(ep, msg, flags);
	else
		ret = post(ep, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->ignore, msg->context,
			   flags | ep->rx_comp);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	(void) desc;
	if (unlikely(count > IVS_IOV_MAX))
		return -FI_EINVAL;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_TAGGED, iov, count, dest, tag, 0, context, ep->tx_comp | ep->tx_flags);
	ivs_unlock(ep->domain);
	return ret;
}

/*
 * Sends one piece of memory; data: 8 bytes of remote CQ data, or NULL. count: counts it (proto/traffic.h); it is a
 * constant, so that calls that do not count need no check.
 */
static inline __attribute__((always_inline)) ssize_t send_one(struct ivs_ep *ep, const void *buf, size_t len,
							      fi_addr_t dest, uint64_t tag, const uint64_t *data,
							      void *context, uint64_t flags, bool count)
{
	struct iovec iov;
	ssize_t ret = 0;

	ivs_lock(ep->domain);
	if (likely(!(flags & FI_DELIVERY_COMPLETE) && ivs_cq_count(ep->tx_cq) < IVS_CQ_UNREAD &&
		   ivs_eager_send_tagged(ep, dest, tag, data, buf, len))) {
		if (flags & FI_COMPLETION)
			ivs_cq_add(ep->tx_cq, context, FI_SEND | FI_TAGGED, len, NULL, 0, tag, FI_ADDR_NOTAVAIL);
		if (count)
			ivs_traffic_count_ring(ep, dest, len);
	} else {
		iov.iov_base = (void *) (uintptr_t) buf;
		iov.iov_len = len;
		ret = ivs_send(ep, IVS_OP_TAGGED, &iov, 1, dest, tag, data ? *data : 0, context,
			       flags | (data ? FI_REMOTE_CQ_DATA : 0));
		if (count && likely(!ret))
			ivs_traffic_count(ep, dest, len, NULL);
	}
	ivs_unlock(ep->domain);
	return ret;
}

/* send_one() for libfabric's calls without flags. */
static inline __attribute__((always_inline)) ssize_t send_plain(struct fid_ep *fid, const void *buf, size_t len,
								fi_addr_t dest, uint64_t tag, const uint64_t *data,
								void *context, bool count)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);

	return send_one(ep, buf, len, dest, tag, data, context, ep->tx_comp | ep->tx_flags, count);
}

/* send_one() for an injection: without a completion, and of memory that is free when this returns. */
static inline __attribute__((always_inline)) ssize_t inject_one(struct fid_ep *fid, const void *buf, size_t len,
								fi_addr_t dest, uint64_t tag, const uint64_t *data,
								bool count)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);

	if (unlikely(len > ep->inject_max))
		return -FI_EMSGSIZE;
	return send_one(ep, buf, len, dest, tag, data, NULL, FI_INJECT, count);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	(void) desc;
	return send_plain(fid, buf, len, dest, tag, NULL, context, false);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	if (unlikely(msg->iov_count > IVS_IOV_MAX))
		return -FI_EINVAL;
	if (flags & FI_INJECT && ivs_iov_bytes(msg->msg_iov, msg->iov_count) > ep->inject_max)
		return -FI_EMSGSIZE;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_TAGGED, msg->msg_iov, msg->iov_count, msg->addr, msg->tag, msg->data, msg->context,
		       flags | ep->tx_comp);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	return inject_one(fid, buf, len, dest, tag, NULL, false);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
			       fi_addr_t dest, uint64_t tag, void *context)
{
	(void) desc;
	return send_plain(fid, buf, len, dest, tag, &data, context, false);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
				 uint64_t tag)
{
	return inject_one(fid, buf, len, dest, tag, &data, false);
}

struct fi_ops_tagged ivs_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.recvv = tagged_recvv,
	.recvmsg = tagged_recvmsg,
	.send = tagged_send,
	.sendv = tagged_sendv,
	.sendmsg = tagged_sendmsg,
	.inject = tagged_inject,
	.senddata = tagged_senddata,
	.injectdata = tagged_injectdata,
};

/* Similar functions instead of one, so that counting is a constant in each. */
static ssize_t counted_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
			    void *context)
{
	(void) desc;
	return send_plain(fid, buf, len, dest, tag, NULL, context, true);
}

static ssize_t counted_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	return inject_one(fid, buf, len, dest, tag, NULL, true);
}

static ssize_t counted_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
				fi_addr_t dest, uint64_t tag, void *context)
{
	(void) desc;
	return send_plain(fid, buf, len, dest, tag, &data, context, true);
}

static ssize_t counted_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
				  uint64_t tag)
{
	return inject_one(fid, buf, len, dest, tag, &data, true);
}

const struct fi_ops_tagged ivs_tagged_counted = {
	.size = sizeof(struct fi_ops_tagged),
	.send = counted_send,
	.inject = counted_inject,
	.senddata = counted_senddata,
	.injectdata = counted_injectdata,
};
