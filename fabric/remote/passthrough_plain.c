/*
 * The calls that MPIs use most, for an endpoint without a region: the plain ones, which are nearly all, are passed
 * directly to the core provider and back. All other calls are left to tagged.c and passthrough.c. Most of the cost is
 * code and data that system calls have evicted from the cache since the last call, so that this code is short rather
 * than general.
 */
#include "remote/core_ep.h"
#include "remote/passthrough.h"

/* Flags of a send that request more than its completion. */
#define SPECIAL (FI_INJECT | FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_REMOTE_CQ_DATA | FI_FENCE)

/* Returns the peer at dest, or NULL if it is not known, or may not be sent to yet. */
static inline struct passthrough_to *known(const struct core_ep *ce, fi_addr_t dest)
{
	return likely(dest < ce->to_size && ce->to[dest].ready) ? &ce->to[dest] : NULL;
}

/* Sends memory that is free when this returns. data: CQ data, or NULL. Returns 0 or a negative error. */
static inline ssize_t inject(struct ivs_ep *ep, struct core_ep *ce, struct passthrough_to *to, const void *buf,
			     size_t len, uint64_t tag, const uint64_t *data)
{
	ssize_t ret;

	ret = data ? fi_tinjectdata(ce->ep, buf, len, *data, to->addr, tag)
		   : fi_tinject(ce->ep, buf, len, to->addr, tag);
	if (likely(!ret)) {
		to->sent++;
		ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
		return 0;
	}
	return ret == -FI_EAGAIN ? ret : -FI_EIO;
}

/* Sends buf, or with copy a copy of it. Returns 0 or a negative error. */
static inline ssize_t post(struct core_ep *ce, struct passthrough_to *to, const void *buf, size_t len, uint64_t tag,
			   const uint64_t *data, void *context, bool wanted, bool copy)
{
	struct passthrough *t = ivs_passthrough_get(ce, copy);
	ssize_t ret;

	if (unlikely(!t))
		return -FI_EAGAIN;
	t->op.kind = OP_PASSTHROUGH_SEND;
	t->op.wanted = wanted;
	t->peer = to->peer;
	t->user = context;
	t->tag = tag;
	t->len = len;
	if (copy)
		buf = memcpy(t->data, buf, len);
	ret = data ? fi_tsenddata(ce->ep, buf, len, NULL, *data, to->addr, tag, &t->op.context)
		   : fi_tsend(ce->ep, buf, len, NULL, to->addr, tag, &t->op.context);
	if (likely(!ret)) {
		ce->sending++;
		to->sent++;
		return 0;
	}
	ivs_passthrough_put(ce, t);
	return ret == -FI_EAGAIN ? ret : -FI_EIO;
}

/* Injects a message; *ret is the result. Returns false if the call is not plain. */
static inline bool do_inject(struct ivs_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag,
			     const uint64_t *data, ssize_t *ret)
{
	struct core_ep *ce = ep->core;
	struct passthrough_to *to;

	ivs_lock(ep->domain);
	to = known(ce, dest);
	if (unlikely(!to || len > IVS_INJECT_MAX || len > ep->inject_max)) {
		ivs_unlock(ep->domain);
		return false;
	}
	*ret = len <= ce->inject ? inject(ep, ce, to, buf, len, tag, data)
				 : post(ce, to, buf, len, tag, data, NULL, false, true);
	ivs_unlock(ep->domain);
	return true;
}

static inline bool do_send(struct ivs_ep *ep, const void *buf, size_t len, fi_addr_t dest, uint64_t tag,
			   const uint64_t *data, void *context, ssize_t *ret)
{
	struct core_ep *ce = ep->core;
	uint64_t flags = ep->tx_comp | ep->tx_flags;
	struct passthrough_to *to;

	ivs_lock(ep->domain);
	to = known(ce, dest);
	if (unlikely(!to || flags & SPECIAL || ivs_cq_count(ep->tx_cq) >= IVS_CQ_UNREAD)) {
		ivs_unlock(ep->domain);
		return false;
	}
	if (len <= ce->inject) {
		*ret = inject(ep, ce, to, buf, len, tag, data);
		if (!*ret && flags & FI_COMPLETION)
			ivs_cq_add(ep->tx_cq, context, FI_SEND | FI_TAGGED, len, NULL, 0, tag, FI_ADDR_NOTAVAIL);
	} else {
		*ret = post(ce, to, buf, len, tag, data, context, flags & FI_COMPLETION, false);
	}
	ivs_unlock(ep->domain);
	return true;
}

/* Returns the calls that handle everything that is not plain. */
static inline struct fi_ops_tagged *general(struct fid_ep *fid)
{
	const struct core_ep *ce = ivs_entry(fid, struct ivs_ep, fid)->core;

	return ce->general;
}

static ssize_t plain_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	ssize_t ret;

	return do_inject(ivs_entry(fid, struct ivs_ep, fid), buf, len, dest, tag, NULL, &ret)
		       ? ret
		       : general(fid)->inject(fid, buf, len, dest, tag);
}

static ssize_t plain_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest,
				uint64_t tag)
{
	ssize_t ret;

	return do_inject(ivs_entry(fid, struct ivs_ep, fid), buf, len, dest, tag, &data, &ret)
		       ? ret
		       : general(fid)->injectdata(fid, buf, len, data, dest, tag);
}

static ssize_t plain_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
			  void *context)
{
	ssize_t ret;

	return do_send(ivs_entry(fid, struct ivs_ep, fid), buf, len, dest, tag, NULL, context, &ret)
		       ? ret
		       : general(fid)->send(fid, buf, len, desc, dest, tag, context);
}

static ssize_t plain_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data,
			      fi_addr_t dest, uint64_t tag, void *context)
{
	ssize_t ret;

	return do_send(ivs_entry(fid, struct ivs_ep, fid), buf, len, dest, tag, &data, context, &ret)
		       ? ret
		       : general(fid)->senddata(fid, buf, len, desc, data, dest, tag, context);
}

static ssize_t plain_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t src, uint64_t tag,
			  uint64_t ignore, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid);
	struct core_ep *ce = ep->core;
	struct ivs_peer *peer = NULL;
	fi_addr_t from = FI_ADDR_UNSPEC;
	struct passthrough *t;
	ssize_t ret;

	ivs_lock(ep->domain);
	if (src != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		if (unlikely(src >= ce->to_size || !ce->to[src].peer))
			goto general;
		peer = ce->to[src].peer;
		from = ce->to[src].addr;
	}
	t = ivs_passthrough_get(ce, false);
	if (unlikely(!t))
		goto general;
	t->op.kind = OP_PASSTHROUGH_RECV;
	t->op.wanted = (ep->rx_comp | ep->rx_flags) & FI_COMPLETION;
	t->op.claims = false;
	t->op.err = 0;
	t->peer = peer;
	t->user = context;
	t->buf = buf;
	t->tag = tag;
	t->len = len;
	ret = fi_trecv(ce->ep, buf, len, NULL, from, tag, ignore, &t->op.context);
	if (likely(!ret))
		ivs_list_add(&ce->receives, &t->link);
	else
		ivs_passthrough_put(ce, t);
	ivs_unlock(ep->domain);
	return ret;

general:
	ivs_unlock(ep->domain);
	return ce->general->recv(fid, buf, len, desc, src, tag, ignore, context);
}

void ivs_passthrough_plain(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;

	ce->general = ep->fid.tagged;
	ce->tagged = *ce->general;
	ce->tagged.recv = plain_recv;
	ce->tagged.send = plain_send;
	ce->tagged.senddata = plain_senddata;
	ce->tagged.inject = plain_inject;
	ce->tagged.injectdata = plain_injectdata;
	ep->fid.tagged = &ce->tagged;
}

size_t ivs_passthrough_read(struct ivs_ep *ep, struct ivs_cq *cq, void *buf, size_t count, fi_addr_t *src)
{
	struct sink sink = { .cq = cq, .out = buf, .src = src, .room = count };

	ivs_core_read(ep, &sink);
	return sink.count;
}
