#include "base/table.h"
#include "remote/core_ep.h"
#include "remote/passthrough.h"

/* Not tuning constants: requests are reused, and a peek that polled more often would block, which it must not. */
#define BLOCK	   32 /* requests allocated at once: some KiB, freed with the endpoint */
#define PEEK_POLLS 4  /* polls before FI_PEEK reports no message */

bool ivs_passthrough_more(struct core_ep *ce, bool room)
{
	size_t bytes = (sizeof(struct passthrough) + (room ? IVS_INJECT_MAX : 0) + 63) & ~(size_t) 63, i;
	struct passthrough *block = aligned_alloc(64, (BLOCK + 1) * bytes), *t;

	if (!block)
		return false;
	memset(block, 0, (BLOCK + 1) * bytes);
	block->next = ce->ops_all;
	ce->ops_all = block;
	for (i = 1; i <= BLOCK; i++) {
		t = (struct passthrough *) (void *) ((char *) block + i * bytes);
		t->op.room = room;
		ivs_passthrough_put(ce, t);
	}
	return true;
}

void ivs_passthrough_free(struct core_ep *ce)
{
	while (ce->ops_all) {
		struct passthrough *block = ce->ops_all;

		ce->ops_all = block->next;
		free(block);
	}
	free(ce->known);
	free(ce->to);
}

/* Enters peer under addr, so that the next message to or from it may use the short path. */
static void learn(struct core_ep *ce, fi_addr_t addr, struct ivs_peer *peer, bool ready)
{
	struct passthrough_to *to;

	/* 2^20 are more than any job has. */
	if (!peer->ep->passthrough || addr >= 1U << 20)
		return;
	to = ivs_table_grow(ce->to, &ce->to_size, addr, sizeof(*to));
	if (!to)
		return;
	ce->to = to;
	to += addr;
	to->addr = peer->core.addr;
	to->peer = peer;
	to->ready |= ready;
}

static void forget(struct passthrough_to *to)
{
	to->peer->core.passthrough_sent += to->sent;
	memset(to, 0, sizeof(*to));
}

void ivs_passthrough_removed(struct ivs_ep *ep, fi_addr_t addr)
{
	struct core_ep *ce = ep->core;

	if (ce && addr < ce->to_size && ce->to[addr].peer)
		forget(&ce->to[addr]);
}

static void forget_peer(struct core_ep *ce, const struct ivs_peer *peer)
{
	size_t i;

	for (i = 0; i < ce->to_size; i++)
		if (ce->to[i].peer && (!peer || ce->to[i].peer == peer))
			forget(&ce->to[i]);
}

void ivs_passthrough_report(struct ivs_ep *ep)
{
	if (ep->core)
		forget_peer(ep->core, NULL);
}

ssize_t ivs_passthrough_send(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len, uint64_t tag,
			     uint64_t data, void *context, uint64_t flags)
{
	struct ivs_ep *ep = peer->ep;
	struct core_ep *ce = ep->core;
	uint64_t how = flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_REMOTE_CQ_DATA);
	bool copy = flags & FI_INJECT;
	struct fi_msg_tagged m;
	struct iovec own;
	struct passthrough *t;
	ssize_t ret;

	if (count <= 1 && len <= ce->inject && (copy || !(how & ~FI_REMOTE_CQ_DATA))) {
		const void *buf = count ? iov->iov_base : NULL;

		ret = how & FI_REMOTE_CQ_DATA ? fi_tinjectdata(ce->ep, buf, len, data, peer->core.addr, tag)
					      : fi_tinject(ce->ep, buf, len, peer->core.addr, tag);
		if (!ret) {
			peer->core.passthrough_sent++;
			learn(ce, peer->fi_addr, peer, true);
			if (flags & FI_COMPLETION)
				ivs_cq_add(ep->tx_cq, context, FI_SEND | FI_TAGGED, len, NULL, 0, tag,
					   FI_ADDR_NOTAVAIL);
			ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
		}
		return ret == 0 || ret == -FI_EAGAIN ? ret : -FI_EIO;
	}
	if (copy && len > IVS_INJECT_MAX)
		return -FI_EMSGSIZE;
	t = ivs_passthrough_get(ce, copy);
	if (!t)
		return -FI_EAGAIN;
	t->op.kind = OP_PASSTHROUGH_SEND;
	t->peer = peer;
	t->user = context;
	t->op.wanted = flags & FI_COMPLETION;
	t->tag = tag;
	t->len = len;
	if (copy) {
		ivs_iov_gather(t->data, len, iov, count, 0);
		own.iov_base = t->data;
		own.iov_len = len;
		iov = &own;
		count = 1;
		how &= FI_REMOTE_CQ_DATA;
	}
	if (likely(count == 1 && !how)) {
		ret = fi_tsend(ce->ep, iov->iov_base, len, NULL, peer->core.addr, tag, &t->op.context);
	} else {
		m = (struct fi_msg_tagged) { .msg_iov = iov,
					     .iov_count = count,
					     .addr = peer->core.addr,
					     .tag = tag,
					     .context = &t->op.context,
					     .data = data };
		ret = fi_tsendmsg(ce->ep, &m, how | FI_COMPLETION);
	}
	if (unlikely(ret)) {
		ivs_passthrough_put(ce, t);
		return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
	}
	ce->sending++;
	peer->core.passthrough_sent++;
	learn(ce, peer->fi_addr, peer, true);
	return 0;
}

static void refuse(struct ivs_ep *ep, const struct passthrough *t, uint64_t flags, size_t len, size_t olen, int err)
{
	ivs_cq_error(ep->rx_cq, t->user, flags, len, t->buf, 0, t->tag, olen, err);
	/* A peek is not counted. */
	if (t->op.kind == OP_PASSTHROUGH_RECV)
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
}

ssize_t ivs_passthrough_recv(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src, uint64_t tag,
			     uint64_t ignore, void *context, uint64_t flags)
{
	struct core_ep *ce = ep->core;
	struct ivs_peer *peer = NULL;
	struct fi_msg_tagged m;
	struct passthrough *t;
	ssize_t ret;
	int err = 0;

	if (!ce)
		return -FI_EOPBADSTATE;
	if (src != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		peer = ce->ops->peer_lookup(ep, src, &err);
		if (!peer)
			return err;
		if (!ivs_core_address(peer))
			return -FI_EHOSTUNREACH;
		if (peer->channel != IVS_CHAN_DEAD)
			learn(ce, src, peer, false);
	}
	/* The core provider identifies a claimed message by the context of the claim. */
	t = flags & FI_CLAIM && !(flags & FI_PEEK) ? ((struct fi_context *) context)->internal[0]
						   : ivs_passthrough_get(ce, false);
	if (!t)
		return -FI_ENOMEM;
	t->op.kind = flags & FI_PEEK ? OP_PASSTHROUGH_PEEK : OP_PASSTHROUGH_RECV;
	t->op.err = 0;
	t->op.claims = (flags & (FI_PEEK | FI_CLAIM)) == (FI_PEEK | FI_CLAIM);
	t->peer = peer;
	t->user = context;
	t->op.wanted = flags & FI_COMPLETION;
	t->tag = tag;
	t->buf = count ? iov->iov_base : NULL;
	t->len = ivs_iov_bytes(iov, count);
	if (peer && peer->channel == IVS_CHAN_DEAD && !(flags & FI_CLAIM)) {
		refuse(ep, t, FI_RECV | FI_TAGGED, 0, 0, flags & FI_PEEK ? FI_ENOMSG : FI_EIO);
		ivs_passthrough_put(ce, t);
		return 0;
	}
	if (likely(count == 1 && !(flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)))) {
		ret = fi_trecv(ce->ep, iov->iov_base, t->len, NULL, peer ? peer->core.addr : FI_ADDR_UNSPEC, tag,
			       ignore, &t->op.context);
	} else {
		m = (struct fi_msg_tagged) { .msg_iov = iov,
					     .iov_count = count,
					     .addr = peer ? peer->core.addr : FI_ADDR_UNSPEC,
					     .tag = tag,
					     .ignore = ignore,
					     .context = &t->op.context };
		ret = fi_trecvmsg(ce->ep, &m, (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) | FI_COMPLETION);
	}
	if (unlikely(ret)) {
		if (flags & FI_PEEK && ret == -FI_ENOMSG) {
			refuse(ep, t, FI_RECV | FI_TAGGED, 0, 0, FI_ENOMSG);
			ret = 0;
		}
		ivs_passthrough_put(ce, t);
		return ret;
	}
	if (t->op.kind == OP_PASSTHROUGH_RECV)
		ivs_list_add(&ce->receives, &t->link);
	else
		/* The answer is in the queue, after earlier completions. */
		for (err = 0; err < PEEK_POLLS && ivs_core_poll(ep); err++)
			;
	return 0;
}

ssize_t ivs_passthrough_cancel(struct ivs_ep *ep, void *context)
{
	struct core_ep *ce = ep->core;
	struct ivs_list *pos;

	ivs_list_each(pos, &ce->receives) {
		struct passthrough *t = ivs_entry(pos, struct passthrough, link);

		if (t->user == context)
			return fi_cancel(&ce->ep->fid, &t->op.context);
	}
	return -FI_ENOENT;
}

void ivs_passthrough_dead(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;
	struct ivs_list *pos, *tmp;

	if (!ce)
		return;
	forget_peer(ce, peer);
	ivs_list_each_safe(pos, tmp, &ce->receives) {
		struct passthrough *t = ivs_entry(pos, struct passthrough, link);

		if (t->peer != peer)
			continue;
		t->op.err = FI_EIO;
		fi_cancel(&ce->ep->fid, &t->op.context);
	}
}

void ivs_passthrough_known(struct core_ep *ce, struct ivs_peer *peer)
{
	struct ivs_peer **known;

	/* An index, because an AV of type FI_AV_TABLE was requested; 2^20 of them are more than any job has. */
	if (!ce->core->tagged || peer->core.addr >= 1U << 20)
		return;
	known = ivs_table_grow(ce->known, &ce->known_size, peer->core.addr, sizeof(struct ivs_peer *));
	if (!known)
		return;
	ce->known = known;
	known[peer->core.addr] = peer;
}

void ivs_passthrough_inserted(struct ivs_ep *ep, fi_addr_t addr)
{
	struct ivs_peer *peer;
	int err;

	if (!(ep->caps & FI_SOURCE))
		return;
	peer = ep->core->ops->peer_lookup(ep, addr, &err);
	if (peer)
		ivs_core_address(peer);
}

static inline fi_addr_t who(const struct core_ep *ce, fi_addr_t src)
{
	return src < ce->known_size && ce->known[src] ? ce->known[src]->fi_addr : FI_ADDR_NOTAVAIL;
}

static inline void complete(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
			    uint64_t tag, fi_addr_t src, struct sink *sink)
{
	if (sink->cq == cq && sink->count < sink->room && cq->head == cq->tail) {
		ivs_cq_fill(cq, sink->out, context, flags, len, buf, data, tag);
		sink->out += cq->entry_bytes;
		if (sink->src)
			sink->src[sink->count] = src;
		sink->count++;
	} else {
		ivs_cq_add(cq, context, flags, len, buf, data, tag, src);
	}
}

void ivs_passthrough_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e, fi_addr_t src,
			  struct sink *sink)
{
	struct core_ep *ce = ep->core;
	struct passthrough *t = ivs_entry(op, struct passthrough, op);
	uint64_t flags = FI_RECV | FI_TAGGED | (e->flags & FI_REMOTE_CQ_DATA);

	if (likely(op->kind == OP_PASSTHROUGH_RECV)) {
		ivs_list_del(&t->link);
		if (op->wanted)
			complete(ep->rx_cq, t->user, flags, e->len, t->buf, e->data, e->tag, who(ce, src), sink);
		ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], e->len);
	} else if (op->kind == OP_PASSTHROUGH_SEND) {
		ce->sending--;
		if (op->wanted)
			complete(ep->tx_cq, t->user, FI_SEND | FI_TAGGED, t->len, NULL, 0, t->tag, FI_ADDR_NOTAVAIL,
				 sink);
		ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], t->len);
	} else {
		ivs_cq_add(ep->rx_cq, t->user, flags, e->len, NULL, e->data, e->tag, who(ce, src));
		if (op->claims) {
			/* Kept for the receive that uses it. */
			((struct fi_context *) t->user)->internal[0] = t;
			return;
		}
	}
	ivs_passthrough_put(ce, t);
}

void ivs_passthrough_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e)
{
	struct core_ep *ce = ep->core;
	struct passthrough *t = ivs_entry(op, struct passthrough, op);
	int err = e->err;

	if (op->kind == OP_PASSTHROUGH_SEND) {
		struct ivs_peer *peer = t->peer;

		ce->sending--;
		ivs_cq_error(ep->tx_cq, t->user, FI_SEND | FI_TAGGED, 0, NULL, 0, t->tag, 0, FI_EIO);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_SEND]);
		ivs_passthrough_put(ce, t);
		IVS_INFO(FI_LOG_EP_DATA, "a rank on another host is gone: %s\n", ivs_lib.strerror(err));
		ivs_peer_condemn(peer);
		return;
	}
	if (op->kind == OP_PASSTHROUGH_RECV)
		ivs_list_del(&t->link);
	if (err == FI_ECANCELED && op->err)
		err = op->err;
	else if (err != FI_ECANCELED && err != FI_ETRUNC && err != FI_ENOMSG)
		err = FI_EIO;
	if (err == FI_ETRUNC)
		t->tag = e->tag;
	/* Not every provider reports the number of truncated bytes. */
	refuse(ep, t, FI_RECV | FI_TAGGED, err == FI_ETRUNC ? t->len : 0, e->olen, err);
	ivs_passthrough_put(ce, t);
}
