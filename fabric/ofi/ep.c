/* Endpoints. */
#include "ofi/open.h"
#include "proto/proto.h"
#include "proto/shown.h"
#include "proto/traffic.h"
#include "remote/core.h"
#include "remote/passthrough.h"
#include "ring/home.h"

static ssize_t cancel_in(struct ivs_ep *ep, struct ivs_queue *q, bool tagged, void *context)
{
	struct ivs_rx **at, *rx;

	for (at = &q->head; (rx = *at); at = &rx->next) {
		if (rx->context != context)
			continue;
		*at = rx->next;
		if (!rx->next)
			q->tail = at;
		ivs_cq_error(ep->rx_cq, rx->context, FI_RECV | (tagged ? FI_TAGGED : FI_MSG), 0, NULL, 0, rx->tag, 0,
			     FI_ECANCELED);
		ivs_cntr_fail(ep->cntr[IVS_CNTR_RECV]);
		if (rx->busy)
			rx->done = true; /* messages are still arriving in it */
		else
			ivs_rx_put(ep, rx);
		return 0;
	}
	return -FI_ENOENT;
}

static ssize_t ep_cancel(fid_t fid, void *context)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);

	ivs_lock(ep->domain);
	if (ep->passthrough && !ivs_passthrough_cancel(ep, context))
		;
	else if (cancel_in(ep, &ep->tagged, true, context))
		cancel_in(ep, &ep->msg, false, context);
	ivs_unlock(ep->domain);
	return 0;
}

/* Options since libfabric 2, which Debian's headers do not define. */
enum {
	OPT_MAX_MSG_SIZE = FI_OPT_XPU_TRIGGER + 3,
	OPT_MAX_TAGGED_SIZE,
	OPT_MAX_RMA_SIZE,
	OPT_MAX_ATOMIC_SIZE,
	OPT_INJECT_MSG_SIZE,
	OPT_INJECT_TAGGED_SIZE,
	OPT_INJECT_RMA_SIZE,
	OPT_INJECT_ATOMIC_SIZE,
};

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	size_t size;

	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	switch (name) {
	case FI_OPT_MIN_MULTI_RECV: size = ep->min_multi_recv; break;
	case FI_OPT_CM_DATA_SIZE: size = 0; break;
	case OPT_MAX_MSG_SIZE:
	case OPT_MAX_TAGGED_SIZE:
	case OPT_MAX_RMA_SIZE: size = IVS_MSG_MAX; break;
	case OPT_MAX_ATOMIC_SIZE: size = IVS_ATOMIC_MAX; break;
	case OPT_INJECT_MSG_SIZE:
	case OPT_INJECT_TAGGED_SIZE:
	case OPT_INJECT_RMA_SIZE:
	case OPT_INJECT_ATOMIC_SIZE: size = ep->inject_max; break;
	default: return -FI_ENOPROTOOPT;
	}
	if (*len < sizeof(size)) {
		*len = sizeof(size);
		return -FI_ETOOSMALL;
	}
	*(size_t *) value = size;
	*len = sizeof(size);
	return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	size_t size;

	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	if (name == FI_OPT_FI_HMEM_P2P)
		return -FI_EOPNOTSUPP;
	if (len != sizeof(size))
		return name == FI_OPT_MIN_MULTI_RECV ? -FI_EINVAL : -FI_ENOPROTOOPT;
	size = *(const size_t *) value;
	switch (name) {
	case FI_OPT_MIN_MULTI_RECV: ep->min_multi_recv = size; return 0;
	/* The application promises to use less than the provider offers. */
	case OPT_MAX_MSG_SIZE:
	case OPT_MAX_TAGGED_SIZE:
	case OPT_MAX_RMA_SIZE: return size <= IVS_MSG_MAX ? 0 : -FI_EINVAL;
	case OPT_MAX_ATOMIC_SIZE: return size <= IVS_ATOMIC_MAX ? 0 : -FI_EINVAL;
	case OPT_INJECT_MSG_SIZE:
	case OPT_INJECT_TAGGED_SIZE:
	case OPT_INJECT_RMA_SIZE:
	case OPT_INJECT_ATOMIC_SIZE: return size <= ep->inject_max ? 0 : -FI_EINVAL;
	default: return -FI_ENOPROTOOPT;
	}
}

static int no_tx_ctx(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **ep, void *context)
{
	(void) sep;
	(void) index;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_rx_ctx(struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
	(void) sep;
	(void) index;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *ep)
{
	(void) ep;
	return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = no_tx_ctx,
	.rx_ctx = no_rx_ctx,
	.rx_size_left = no_size_left,
	.tx_size_left = no_size_left,
};

static int cm_setname(fid_t fid, void *addr, size_t len)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);

	if (len != sizeof(ep->want))
		return -FI_EINVAL;
	if (ep->enabled)
		return -FI_EBUSY;
	memcpy(&ep->want, addr, len);
	return 0;
}

static int cm_getname(fid_t fid, void *addr, size_t *len)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	size_t room = *len;

	*len = sizeof(ep->addr);
	if (room < sizeof(ep->addr))
		return -FI_ETOOSMALL;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	memcpy(addr, &ep->addr, sizeof(ep->addr));
	return 0;
}

static int cm_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
	(void) ep;
	(void) addr;
	(void) len;
	return -FI_ENOSYS;
}

static int cm_connect(struct fid_ep *ep, const void *addr, const void *param, size_t len)
{
	(void) ep;
	(void) addr;
	(void) param;
	(void) len;
	return -FI_ENOSYS;
}

static int cm_listen(struct fid_pep *pep)
{
	(void) pep;
	return -FI_ENOSYS;
}

static int cm_accept(struct fid_ep *ep, const void *param, size_t len)
{
	(void) ep;
	(void) param;
	(void) len;
	return -FI_ENOSYS;
}

static int cm_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t len)
{
	(void) pep;
	(void) handle;
	(void) param;
	(void) len;
	return -FI_ENOSYS;
}

static int cm_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void) ep;
	(void) flags;
	return -FI_ENOSYS;
}

static int cm_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
	(void) ep;
	(void) addr;
	(void) flags;
	(void) mc;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = cm_setname,
	.getname = cm_getname,
	.getpeer = cm_getpeer,
	.connect = cm_connect,
	.listen = cm_listen,
	.accept = cm_accept,
	.reject = cm_reject,
	.shutdown = cm_shutdown,
	.join = cm_join,
};

static int bind_cntr(struct ivs_ep *ep, struct ivs_cntr *cntr, uint64_t flags)
{
	static const struct {
		uint64_t flag;
		int index;
	} kinds[] = {
		{ FI_SEND, IVS_CNTR_SEND },
		{ FI_RECV, IVS_CNTR_RECV },
		{ FI_READ, IVS_CNTR_READ },
		{ FI_WRITE, IVS_CNTR_WRITE },
	};
	size_t i;

	for (i = 0; i < 4; i++)
		if (flags & kinds[i].flag) {
			if (ep->cntr[kinds[i].index])
				return -FI_EINVAL;
			ep->cntr[kinds[i].index] = cntr;
			ivs_ref(&cntr->refs);
		}
	if (flags & FI_REMOTE_READ) {
		ep->rma_cntr[0] = cntr;
		ivs_ref(&cntr->refs);
	}
	if (flags & FI_REMOTE_WRITE) {
		ep->rma_cntr[1] = cntr;
		ivs_ref(&cntr->refs);
	}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	struct ivs_cq *cq;
	struct ivs_av *av;

	switch (bfid->fclass) {
	case FI_CLASS_AV:
		av = ivs_entry(bfid, struct ivs_av, fid.fid);
		if (ep->av || av->domain != ep->domain)
			return -FI_EINVAL;
		ep->av = av;
		ivs_ref(&av->refs);
		ivs_list_add(&av->eps, &ep->av_link);
		return 0;
	case FI_CLASS_CQ:
		cq = ivs_entry(bfid, struct ivs_cq, fid.fid);
		if (cq->domain != ep->domain)
			return -FI_EINVAL;
		if (flags & ~(uint64_t) (FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
			return -FI_EBADFLAGS;
		if ((flags & FI_TRANSMIT && ep->tx_cq) || (flags & FI_RECV && ep->rx_cq))
			return -FI_EINVAL;
		if (flags & FI_TRANSMIT) {
			ep->tx_cq = cq;
			ep->tx_comp = flags & FI_SELECTIVE_COMPLETION ? 0 : FI_COMPLETION;
			ivs_ref(&cq->refs);
		}
		if (flags & FI_RECV) {
			ep->rx_cq = cq;
			ep->rx_comp = flags & FI_SELECTIVE_COMPLETION ? 0 : FI_COMPLETION;
			ivs_ref(&cq->refs);
		}
		return 0;
	case FI_CLASS_CNTR: return bind_cntr(ep, ivs_entry(bfid, struct ivs_cntr, fid.fid), flags);
	case FI_CLASS_EQ: return 0;
	default: return -FI_EINVAL;
	}
}

/* Creates the queue that discards the completions of an endpoint without a queue. */
static struct ivs_cq *sink_cq(struct ivs_ep *ep)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cq *fid;

	if (ivs_cq_open(&ep->domain->fid, &attr, &fid, NULL))
		return NULL;
	ep->sink = ivs_entry(fid, struct ivs_cq, fid);
	ep->sink->size = SIZE_MAX;
	return ep->sink;
}

static int enable(struct ivs_ep *ep)
{
	struct ivs_domain *d = ep->domain;
	struct ivs_region *r = d->region;
	uint32_t i;
	int ret;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->av)
		return -FI_ENOAV;
	if ((!ep->tx_cq && !ep->cntr[IVS_CNTR_SEND] && !ep->cntr[IVS_CNTR_WRITE] && !ep->cntr[IVS_CNTR_READ]) ||
	    (!ep->rx_cq && !ep->cntr[IVS_CNTR_RECV] && ep->caps & (FI_MSG | FI_TAGGED)))
		return -FI_ENOCQ;
	if (!ep->tx_cq) {
		ep->tx_cq = ep->sink ? ep->sink : sink_cq(ep);
		ep->tx_comp = 0;
	}
	if (!ep->rx_cq) {
		ep->rx_cq = ep->sink ? ep->sink : sink_cq(ep);
		ep->rx_comp = 0;
	}
	if (!ep->tx_cq || !ep->rx_cq)
		return -FI_ENOMEM;
	memset(&ep->addr, 0, sizeof(ep->addr));
	if (r) {
		if (!ep->by_slot)
			ep->by_slot = calloc(r->geo.slots, sizeof(*ep->by_slot));
		if (!ep->by_slot || ivs_proto_enable(ep, r->geo.slots))
			return -FI_ENOMEM;
		ret = ivs_home_claim(&ep->home, r, ep->want.kind == IVS_ADDR_NAME ? ep->want.id : 0);
		if (ret)
			return ret;
		ep->me = &r->slots[ep->home.slot];
		ep->turn = ep->home.slot;
		ep->addr.kind = IVS_ADDR_SLOT;
		ep->addr.slot = (uint16_t) ep->home.slot;
		ep->addr.epoch = ep->home.epoch;
		ep->addr.id = r->id;
	} else {
		ep->addr.kind = IVS_ADDR_CORE;
	}
	if (d->core) {
		ret = ivs_core_enable(ep, &ivs_deliver);
		if (ret) {
			ivs_home_leave(&ep->home);
			ivs_home_free(&ep->home);
			return ret;
		}
	}
	ivs_traffic_open(ep, ep->fid.tagged == &ivs_tagged_ops ? &ivs_tagged_counted : NULL);
	ep->enabled = true;
	for (i = 0; ep->passthrough && i < ep->av->count; i++)
		if (ep->av->used[i])
			ivs_passthrough_inserted(ep, i);
	if (r) {
		ivs_mr_show_all(ep);
		ivs_slot_live(r, ep->home.slot, ep->home.epoch);
	}
	return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	uint64_t flags;
	int ret;

	switch (command) {
	case FI_ENABLE:
		ivs_lock(ep->domain);
		ret = enable(ep);
		ivs_unlock(ep->domain);
		return ret;
	case FI_GETOPSFLAG:
		flags = *(uint64_t *) arg;
		if ((flags & FI_TRANSMIT && flags & FI_RECV) || !(flags & (FI_TRANSMIT | FI_RECV)))
			return -FI_EINVAL;
		*(uint64_t *) arg = flags & FI_TRANSMIT ? ep->tx_flags : ep->rx_flags;
		return 0;
	case FI_SETOPSFLAG:
		flags = *(uint64_t *) arg;
		if (flags & FI_TRANSMIT)
			ep->tx_flags = flags & ~(uint64_t) FI_TRANSMIT;
		else if (flags & FI_RECV)
			ep->rx_flags = flags & ~(uint64_t) FI_RECV;
		else
			return -FI_EINVAL;
		return 0;
	default: return -FI_ENOSYS;
	}
}

static void free_queue(struct ivs_ep *ep, struct ivs_list *ux)
{
	while (!ivs_list_empty(ux)) {
		struct ivs_msg *msg = ivs_entry(ux->next, struct ivs_msg, link);

		msg->queued = true;
		ivs_msg_free(ep, msg);
	}
}

static void unbind(struct ivs_ep *ep)
{
	int i;

	if (ep->av) {
		ivs_unref(&ep->av->refs);
		ivs_list_del(&ep->av_link);
	}
	if (ep->tx_cq && ep->tx_cq != ep->sink)
		ivs_unref(&ep->tx_cq->refs);
	if (ep->rx_cq && ep->rx_cq != ep->sink)
		ivs_unref(&ep->rx_cq->refs);
	for (i = 0; i < 4; i++)
		if (ep->cntr[i])
			ivs_unref(&ep->cntr[i]->refs);
	for (i = 0; i < 2; i++)
		if (ep->rma_cntr[i])
			ivs_unref(&ep->rma_cntr[i]->refs);
	if (ep->sink)
		fi_close(&ep->sink->fid.fid);
}

static int ep_close(struct fid *fid)
{
	struct ivs_ep *ep = ivs_entry(fid, struct ivs_ep, fid.fid);
	struct ivs_domain *d = ep->domain;

	ivs_lock(d);
	if (ep->enabled && !ivs_forked(d->pid)) {
		/* Send all accepted messages, if the peers receive them soon. */
		uint64_t start = ivs_now_ms();

		while (!ivs_list_empty(&ep->active) && ivs_now_ms() - start < IVS_CLOSE_MS)
			ivs_ep_progress(ep);
		ivs_report_use(ep);
		ivs_traffic_close(ep, true);
		ivs_shown_close(ep, false);
		ivs_home_leave(&ep->home);
		if (d->core)
			ivs_core_disable(ep);
	} else {
		ivs_shown_close(ep, true);
		ivs_traffic_close(ep, false);
	}
	ivs_list_del(&ep->domain_link);
	/* Free messages before the peers that they refer to. */
	free_queue(ep, &ep->ux_tagged);
	free_queue(ep, &ep->ux_msg);
	free_queue(ep, &ep->claimed);
	while (!ivs_list_empty(&ep->peers_all))
		ivs_peer_free(ivs_entry(ep->peers_all.next, struct ivs_peer, all));
	while (ep->rx_blocks) {
		struct ivs_rx *block = ep->rx_blocks;

		ep->rx_blocks = block->next;
		free(block);
	}
	unbind(ep);
	ivs_unref(&d->refs);
	ivs_unlock(d);
	free(ep->peers);
	free(ep->by_slot);
	ivs_proto_free(ep);
	ivs_home_free(&ep->home);
	free(ep);
	return 0;
}

static struct fi_ops ep_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_ep *ep;

	if (!info || !info->ep_attr || (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC))
		return -FI_EINVAL;
	if (info->ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT || info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT)
		return -FI_ENOSYS;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -FI_ENOMEM;
	ep->domain = d;
	ep->caps = info->caps;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->inject_max = IVS_INJECT_MAX;
	ep->short_max = ivs_param.inline_max < 8 ? 0 : ivs_param.inline_max - 8;
	ep->min_multi_recv = 1;
	ivs_home_init(&ep->home, NM_PROTOCOL_OFI, &d->wake);
	if (info->src_addr && info->src_addrlen == sizeof(ep->want))
		memcpy(&ep->want, info->src_addr, sizeof(ep->want));
	ep->tagged.tail = &ep->tagged.head;
	ep->msg.tail = &ep->msg.head;
	ivs_list_init(&ep->ux_tagged);
	ivs_list_init(&ep->ux_msg);
	ivs_list_init(&ep->claimed);
	ivs_list_init(&ep->peers_all);
	ivs_list_init(&ep->active);
	ivs_list_init(&ep->av_link);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fi_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &cm_ops;
	ep->fid.msg = &ivs_msg_ops;
	ep->fid.tagged = &ivs_tagged_ops;
	ep->fid.rma = &ivs_rma_ops;
	ep->fid.atomic = &ivs_atomic_ops;
	ivs_lock(d);
	d->mr_closed = ivs_stop_access;
	ivs_list_add(&d->eps, &ep->domain_link);
	ivs_ref(&d->refs);
	ivs_unlock(d);
	*out = &ep->fid;
	return 0;
}
