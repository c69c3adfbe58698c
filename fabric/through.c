#include "inner_ep.h"
#include "through.h"

#define BLOCK		32	/* requests made at once */
#define PEEK_LOOKS	4

bool ivs_through_more(struct inner_ep *ie, bool room)
{
	size_t bytes = (sizeof(struct through) + (room ? IVS_INJECT_MAX : 0) + 63) & ~(size_t) 63, i;
	struct through *block = aligned_alloc(64, (BLOCK + 1) * bytes), *t;

	if (!block)
		return false;
	memset(block, 0, (BLOCK + 1) * bytes);
	block->next = ie->ops_all;
	ie->ops_all = block;
	for (i = 1; i <= BLOCK; i++) {
		t = (struct through *) (void *) ((char *) block + i * bytes);
		t->op.room = room;
		ivs_through_put(ie, t);
	}
	return true;
}

void ivs_through_free(struct inner_ep *ie)
{
	while (ie->ops_all) {
		struct through *block = ie->ops_all;

		ie->ops_all = block->next;
		free(block);
	}
	free(ie->known);
	free(ie->to);
}

/* The next message to or from addr, which is peer, may go the short way. */
static void learn(struct inner_ep *ie, fi_addr_t addr, struct ivs_peer *peer, bool ready)
{
	size_t size = ie->to_size ? ie->to_size : 64;
	struct through_to *to;

	/* 2^20 are more than any job's. */
	if (!peer->ep->through || addr >= 1U << 20)
		return;
	while (size <= addr)
		size *= 2;
	if (size > ie->to_size) {
		to = realloc(ie->to, size * sizeof(*to));
		if (!to)
			return;
		memset(to + ie->to_size, 0, (size - ie->to_size) * sizeof(*to));
		ie->to = to;
		ie->to_size = size;
	}
	to = &ie->to[addr];
	to->inner = peer->inner_addr;
	to->peer = peer;
	to->ready |= ready;
}

static void forget(struct through_to *to)
{
	to->peer->through_sent += to->sent;
	memset(to, 0, sizeof(*to));
}

void ivs_through_removed(struct ivs_ep *ep, fi_addr_t addr)
{
	struct inner_ep *ie = ep->inner;

	if (ie && addr < ie->to_size && ie->to[addr].peer)
		forget(&ie->to[addr]);
}

static void forget_peer(struct inner_ep *ie, const struct ivs_peer *peer)
{
	size_t i;

	for (i = 0; i < ie->to_size; i++)
		if (ie->to[i].peer && (!peer || ie->to[i].peer == peer))
			forget(&ie->to[i]);
}

void ivs_through_report(struct ivs_ep *ep)
{
	if (ep->inner)
		forget_peer(ep->inner, NULL);
}

ssize_t ivs_through_send(struct ivs_peer *peer, const struct iovec *iov, size_t count, size_t len,
			 uint64_t tag, uint64_t data, void *context, uint64_t flags)
{
	struct ivs_ep *ep = peer->ep;
	struct inner_ep *ie = ep->inner;
	uint64_t how = flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_REMOTE_CQ_DATA);
	bool copy = flags & FI_INJECT;
	struct fi_msg_tagged m;
	struct iovec own;
	struct through *t;
	ssize_t ret;

	if (count <= 1 && len <= ie->inject &&
	    (copy || !(how & ~FI_REMOTE_CQ_DATA))) {
		const void *buf = count ? iov->iov_base : NULL;

		ret = how & FI_REMOTE_CQ_DATA ?
		      fi_tinjectdata(ie->ep, buf, len, data, peer->inner_addr, tag) :
		      fi_tinject(ie->ep, buf, len, peer->inner_addr, tag);
		if (!ret) {
			peer->through_sent++;
			learn(ie, peer->fi_addr, peer, true);
			if (flags & FI_COMPLETION)
				ivs_cq_add(ep->tx_cq, context, FI_SEND | FI_TAGGED, len, NULL, 0,
					   tag, FI_ADDR_NOTAVAIL);
			ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], len);
		}
		return ret == 0 || ret == -FI_EAGAIN ? ret : -FI_EIO;
	}
	if (copy && len > IVS_INJECT_MAX)
		return -FI_EMSGSIZE;
	t = ivs_through_get(ie, copy);
	if (!t)
		return -FI_EAGAIN;
	t->op.kind = OP_THROUGH_SEND;
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
		ret = fi_tsend(ie->ep, iov->iov_base, len, NULL, peer->inner_addr, tag,
			       &t->op.context);
	} else {
		m = (struct fi_msg_tagged) { .msg_iov = iov, .iov_count = count,
			.addr = peer->inner_addr, .tag = tag, .context = &t->op.context,
			.data = data };
		ret = fi_tsendmsg(ie->ep, &m, how | FI_COMPLETION);
	}
	if (unlikely(ret)) {
		ivs_through_put(ie, t);
		return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
	}
	ie->sending++;
	peer->through_sent++;
	learn(ie, peer->fi_addr, peer, true);
	return 0;
}

static void refuse(struct ivs_ep *ep, const struct through *t, uint64_t flags, size_t len,
		   size_t olen, int err)
{
	ivs_cq_error(ep->rx_cq, t->user, flags, len, t->buf, 0, t->tag, olen, err);
	/* A look at what is there counts nothing. */
	if (t->op.kind == OP_THROUGH_RECV)
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
}

ssize_t ivs_through_recv(struct ivs_ep *ep, const struct iovec *iov, size_t count, fi_addr_t src,
			 uint64_t tag, uint64_t ignore, void *context, uint64_t flags)
{
	struct inner_ep *ie = ep->inner;
	struct ivs_peer *peer = NULL;
	struct fi_msg_tagged m;
	struct through *t;
	ssize_t ret;
	int err = 0;

	if (!ie)
		return -FI_EOPBADSTATE;
	if (src != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		peer = ivs_peer_lookup(ep, src, &err);
		if (!peer)
			return err;
		if (!ivs_inner_address(peer))
			return -FI_EHOSTUNREACH;
		if (peer->channel != IVS_CHAN_DEAD)
			learn(ie, src, peer, false);
	}
	/* What was claimed is known to the inner provider by the context of the claim. */
	t = flags & FI_CLAIM && !(flags & FI_PEEK) ?
	    ((struct fi_context *) context)->internal[0] :
	    ivs_through_get(ie, false);
	if (!t)
		return -FI_ENOMEM;
	t->op.kind = flags & FI_PEEK ? OP_THROUGH_PEEK : OP_THROUGH_RECV;
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
		ivs_through_put(ie, t);
		return 0;
	}
	if (likely(count == 1 && !(flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)))) {
		ret = fi_trecv(ie->ep, iov->iov_base, t->len, NULL,
			       peer ? peer->inner_addr : FI_ADDR_UNSPEC, tag, ignore,
			       &t->op.context);
	} else {
		m = (struct fi_msg_tagged) { .msg_iov = iov, .iov_count = count,
			.addr = peer ? peer->inner_addr : FI_ADDR_UNSPEC, .tag = tag,
			.ignore = ignore, .context = &t->op.context };
		ret = fi_trecvmsg(ie->ep, &m, (flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) |
				  FI_COMPLETION);
	}
	if (unlikely(ret)) {
		if (flags & FI_PEEK && ret == -FI_ENOMSG) {
			refuse(ep, t, FI_RECV | FI_TAGGED, 0, 0, FI_ENOMSG);
			ret = 0;
		}
		ivs_through_put(ie, t);
		return ret;
	}
	if (t->op.kind == OP_THROUGH_RECV)
		ivs_list_add(&ie->receives, &t->link);
	else
		/* The answer is there, behind what has come before. */
		for (err = 0; err < PEEK_LOOKS && ivs_inner_poll(ep); err++)
			;
	return 0;
}

ssize_t ivs_through_cancel(struct ivs_ep *ep, void *context)
{
	struct inner_ep *ie = ep->inner;
	struct ivs_list *pos;

	ivs_list_each(pos, &ie->receives) {
		struct through *t = ivs_entry(pos, struct through, link);

		if (t->user == context)
			return fi_cancel(&ie->ep->fid, &t->op.context);
	}
	return -FI_ENOENT;
}

void ivs_through_dead(struct ivs_peer *peer, int err)
{
	struct inner_ep *ie = peer->ep->inner;
	struct ivs_list *pos, *tmp;

	if (!ie)
		return;
	forget_peer(ie, peer);
	ivs_list_each_safe(pos, tmp, &ie->receives) {
		struct through *t = ivs_entry(pos, struct through, link);

		if (t->peer != peer)
			continue;
		t->op.err = (uint16_t) err;
		fi_cancel(&ie->ep->fid, &t->op.context);
	}
}

void ivs_through_known(struct inner_ep *ie, struct ivs_peer *peer)
{
	size_t size = ie->known_size ? ie->known_size : 64;
	struct ivs_peer **known;

	/* An index, as we asked for; 2^20 of them are more than any job's. */
	if (!ie->inner->tagged || peer->inner_addr >= 1U << 20)
		return;
	while (size <= peer->inner_addr)
		size *= 2;
	if (size > ie->known_size) {
		known = realloc(ie->known, size * sizeof(*known));
		if (!known)
			return;
		memset(known + ie->known_size, 0, (size - ie->known_size) * sizeof(*known));
		ie->known = known;
		ie->known_size = size;
	}
	ie->known[peer->inner_addr] = peer;
}

void ivs_through_inserted(struct ivs_ep *ep, fi_addr_t addr)
{
	struct ivs_peer *peer;
	int err;

	if (!(ep->caps & FI_SOURCE))
		return;
	peer = ivs_peer_lookup(ep, addr, &err);
	if (peer)
		ivs_inner_address(peer);
}

static inline fi_addr_t who(const struct inner_ep *ie, fi_addr_t src)
{
	return src < ie->known_size && ie->known[src] ? ie->known[src]->fi_addr : FI_ADDR_NOTAVAIL;
}

static inline void complete(struct ivs_cq *cq, void *context, uint64_t flags, size_t len, void *buf,
			    uint64_t data, uint64_t tag, fi_addr_t src, struct sink *sink)
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

void ivs_through_done(struct ivs_ep *ep, struct op *op, const struct fi_cq_tagged_entry *e,
		      fi_addr_t src, struct sink *sink)
{
	struct inner_ep *ie = ep->inner;
	struct through *t = ivs_entry(op, struct through, op);
	uint64_t flags = FI_RECV | FI_TAGGED | (e->flags & FI_REMOTE_CQ_DATA);

	if (likely(op->kind == OP_THROUGH_RECV)) {
		ivs_list_del(&t->link);
		if (op->wanted)
			complete(ep->rx_cq, t->user, flags, e->len, t->buf, e->data, e->tag,
				 who(ie, src), sink);
		ivs_cntr_inc(ep->cntr[IVS_CNTR_RECV], e->len);
	} else if (op->kind == OP_THROUGH_SEND) {
		ie->sending--;
		if (op->wanted)
			complete(ep->tx_cq, t->user, FI_SEND | FI_TAGGED, t->len, NULL, 0, t->tag,
				 FI_ADDR_NOTAVAIL, sink);
		ivs_cntr_inc(ep->cntr[IVS_CNTR_SEND], t->len);
	} else {
		ivs_cq_add(ep->rx_cq, t->user, flags, e->len, NULL, e->data, e->tag,
			   who(ie, src));
		if (op->claims) {
			/* Kept for the receive that takes it. */
			((struct fi_context *) t->user)->internal[0] = t;
			return;
		}
	}
	ivs_through_put(ie, t);
}

void ivs_through_failed(struct ivs_ep *ep, struct op *op, const struct fi_cq_err_entry *e)
{
	struct inner_ep *ie = ep->inner;
	struct through *t = ivs_entry(op, struct through, op);
	int err = e->err;

	if (op->kind == OP_THROUGH_SEND) {
		struct ivs_peer *peer = t->peer;

		ie->sending--;
		ivs_cq_error(ep->tx_cq, t->user, FI_SEND | FI_TAGGED, 0, NULL, 0, t->tag, 0, FI_EIO);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_SEND]);
		ivs_through_put(ie, t);
		IVS_INFO(FI_LOG_EP_DATA, "a rank on another host is gone: %s\n",
			 ivs_lib.strerror(err));
		ivs_peer_dead(peer, FI_EIO);
		return;
	}
	if (op->kind == OP_THROUGH_RECV)
		ivs_list_del(&t->link);
	if (err == FI_ECANCELED && op->err)
		err = op->err;
	else if (err != FI_ECANCELED && err != FI_ETRUNC && err != FI_ENOMSG)
		err = FI_EIO;
	if (err == FI_ETRUNC)
		t->tag = e->tag;
	/* How much was cut off not every provider says. */
	refuse(ep, t, FI_RECV | FI_TAGGED, err == FI_ETRUNC ? t->len : 0, e->olen, err);
	ivs_through_put(ie, t);
}
