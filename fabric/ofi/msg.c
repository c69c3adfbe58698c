/* The calls of fi_msg. */
#include "ofi/open.h"
#include "proto/proto.h"
#include "ring/copy.h"

static ssize_t post(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src, void *context,
		    uint64_t flags)
{
	struct ivs_peer *peer = NULL;
	struct ivs_rx *rx;
	int err;

	if (src != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		peer = ivs_peer_lookup(ep, src, &err);
		if (!peer)
			return err;
	}
	rx = ivs_rx_get(ep);
	if (!rx)
		return -FI_ENOMEM;
	rx->tag = 0;
	rx->ignore = 0;
	rx->peer = peer;
	rx->context = context;
	rx->flags = flags;
	rx->count = count;
	rx->len = 0;
	rx->iov[0].iov_base = NULL;
	for (size_t i = 0; i < count; i++) {
		rx->iov[i] = iov[i];
		rx->len += iov[i].iov_len;
	}
	rx->parent = NULL;
	rx->used = 0;
	rx->busy = 0;
	rx->done = false;
	ivs_rx_post(ep, rx, false);
	return 0;
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	(void) desc;
	if (count > IVS_IOV_MAX)
		return -FI_EINVAL;
	ivs_lock(ep->domain);
	ret = post(ep, iov, count, src, context, ep->rx_comp | ep->rx_flags);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t src, void *context)
{
	struct iovec iov = { buf, len };

	(void) desc;
	return msg_recvv(fid, &iov, NULL, 1, src, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	if (msg->iov_count > IVS_IOV_MAX || (flags & FI_MULTI_RECV && msg->iov_count != 1))
		return -FI_EINVAL;
	if (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD))
		return -FI_EOPNOTSUPP;
	ivs_lock(ep->domain);
	ret = post(ep, msg->msg_iov, msg->iov_count, msg->addr, msg->context, flags | ep->rx_comp);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	(void) desc;
	if (count > IVS_IOV_MAX)
		return -FI_EINVAL;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_MSG, iov, count, dest, 0, 0, context, ep->tx_comp | ep->tx_flags);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, void *context)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };

	(void) desc;
	return msg_sendv(fid, &iov, NULL, 1, dest, context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	ssize_t ret;

	if (msg->iov_count > IVS_IOV_MAX)
		return -FI_EINVAL;
	if (flags & FI_INJECT && ivs_iov_bytes(msg->msg_iov, msg->iov_count) > ep->inject_max)
		return -FI_EMSGSIZE;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_MSG, msg->msg_iov, msg->iov_count, msg->addr, 0, msg->data, msg->context,
		       flags | ep->tx_comp);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	ssize_t ret;

	if (len > ep->inject_max)
		return -FI_EMSGSIZE;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_MSG, &iov, 1, dest, 0, data, NULL, FI_INJECT | FI_REMOTE_CQ_DATA);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	ssize_t ret;

	if (len > ep->inject_max)
		return -FI_EMSGSIZE;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_MSG, &iov, 1, dest, 0, 0, NULL, FI_INJECT);
	ivs_unlock(ep->domain);
	return ret;
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct iovec iov = { (void *) (uintptr_t) buf, len };
	ssize_t ret;

	(void) desc;
	ivs_lock(ep->domain);
	ret = ivs_send(ep, IVS_OP_MSG, &iov, 1, dest, 0, data, context, ep->tx_comp | ep->tx_flags | FI_REMOTE_CQ_DATA);
	ivs_unlock(ep->domain);
	return ret;
}

struct fi_ops_msg ivs_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};
