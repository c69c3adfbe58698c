/*
 * An endpoint's part of the core provider: opened when the endpoint is enabled, closed with it, and polled. Its
 * completions are passed to wire.c, fetch.c or passthrough.c.
 */
#include <sys/epoll.h>
#include <sys/random.h>

#include "remote/core_ep.h"
#include "tune.h"

/* Lets the core provider's completions also end a sleep. */
static void wakes(struct ivs_ep *ep, struct core_ep *ce)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (fi_control(&ce->cq->fid, FI_GETWAIT, &ce->wait_fd) ||
	    epoll_ctl(ep->domain->wake, EPOLL_CTL_ADD, ce->wait_fd, &ev))
		ce->wait_fd = -1;
}

/*
 * Gives each endpoint its own domain of the core provider. tcp (seen: 2.5) keeps early messages in a list of the
 * domain: a receive of one endpoint would match another one's.
 */
static int take_domain(struct ivs_core *in, struct fid_domain **domain)
{
	if (!in->spare)
		return fi_domain(in->fabric, in->info, domain, NULL);
	*domain = in->spare;
	in->spare = NULL;
	return 0;
}

int ivs_core_enable(struct ivs_ep *ep, const struct ivs_core_ops *ops)
{
	struct ivs_core *in = ep->domain->core;
	bool waits = ep->tx_cq->wait.epoll >= 0 || ep->rx_cq->wait.epoll >= 0;
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED,
				 .size = 1024,
				 .wait_obj = waits ? FI_WAIT_FD : FI_WAIT_NONE };
	struct fi_av_attr av = { .type = in->info->domain_attr->av_type };
	struct core_ep *ce = aligned_alloc(64, (sizeof(*ce) + 63) & ~(size_t) 63);
	size_t len = sizeof(ep->addr.core);
	int ret, i;

	if (!ce)
		return -FI_ENOMEM;
	memset(ce, 0, sizeof(*ce));
	ep->core = ce;
	ce->core = in;
	ce->ops = ops;
	/* Above that size injection costs a copy: only send_gathered() uses it. */
	ce->inject = in->injects ? IVS_CORE_INJECT_MAX : in->info->tx_attr->inject_size;
	ce->wait_fd = -1;
	ivs_list_init(&ce->receives);
	ivs_list_init(&ce->stalled);
	ivs_list_init(&ce->fetches);
	if (getrandom(&ce->uid, sizeof(ce->uid), 0) != sizeof(ce->uid))
		ce->uid = (uintptr_t) ce ^ ivs_now_ms() << 20;
	ce->came = 0U - IVS_CORE_NEXT_TICKS - 1;
	ce->buffers = calloc(2 * IVS_CORE_BUFFERS, sizeof(*ce->buffers));
	ret = ce->buffers ? 0 : -FI_ENOMEM;
	if (!ret)
		ret = take_domain(in, &ce->domain);
	if (!ret)
		ret = fi_av_open(ce->domain, &av, &ce->av, NULL);
	if (!ret) {
		ret = fi_cq_open(ce->domain, &cq, &ce->cq, NULL);
		if (ret && waits) {
			cq.wait_obj = FI_WAIT_NONE;
			ret = fi_cq_open(ce->domain, &cq, &ce->cq, NULL);
		}
	}
	if (!ret)
		ret = fi_endpoint(ce->domain, in->info, &ce->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(ce->ep, &ce->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(ce->ep, &ce->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!ret)
		ret = fi_enable(ce->ep);
	if (!ret && in->info->domain_attr->mr_mode & FI_MR_LOCAL)
		ret = fi_mr_reg(ce->domain, ce->buffers, 2 * IVS_CORE_BUFFERS * sizeof(*ce->buffers), FI_SEND | FI_RECV,
				0, 0, 0, &ce->mr, NULL);
	if (!ret)
		ret = fi_getname(&ce->ep->fid, ep->addr.core, &len);
	/* Without FI_MR_LOCAL: the application's memory is not registered. */
	if (in->info->tx_attr->iov_limit >= 2 && !ce->mr)
		ce->gathers = in->info->tx_attr->inject_size;
	for (i = 0; !ret && i < IVS_CORE_BUFFERS; i++) {
		ce->buffers[i].op.kind = OP_RECEIVED;
		ret = ivs_wire_post(ce, &ce->buffers[i]);
		ce->buffers[IVS_CORE_BUFFERS + i].op.kind = OP_SENT;
		ce->buffers[IVS_CORE_BUFFERS + i].next = ce->free;
		ce->free = &ce->buffers[IVS_CORE_BUFFERS + i];
	}
	if (ret) {
		IVS_WARN(FI_LOG_EP_CTRL, "provider %s: %s\n", in->info->fabric_attr->prov_name, ivs_lib.strerror(-ret));
		ivs_core_disable(ep);
		return ret;
	}
	ep->addr.core_len = (uint8_t) len;
	ep->passthrough = !ep->domain->region && in->tagged;
	ce->sources = ep->passthrough && ep->caps & FI_SOURCE;
	if (ep->passthrough) {
		ep->addr.kind = IVS_ADDR_TAGGED;
		ivs_passthrough_plain(ep);
	}
	if (cq.wait_obj == FI_WAIT_FD)
		wakes(ep, ce);
	return 0;
}

void ivs_core_peer_init(struct ivs_peer_core *core)
{
	core->addr = FI_ADDR_NOTAVAIL;
	core->knock = -1;
}

/* Waits until accepted messages are sent, before the endpoint closes. */
static void flush(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	uint64_t start = ivs_now_ms();
	struct fi_cq_tagged_entry e[16];
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct ivs_list *pos;
	ssize_t n, i;

	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		if (p->core.unsure && !p->core.asked && p->channel == IVS_CHAN_CORE)
			ivs_wire_ask(p);
	}
	while (ce->sending && ivs_now_ms() - start < IVS_CORE_CLOSE_MS) {
		n = fi_cq_read(ce->cq, e, 16);
		memset(&err, 0, sizeof(err));
		if (n == -FI_EAVAIL && fi_cq_readerr(ce->cq, &err.e, 0) == 1) {
			/* One peer has ended: the others may still be there. */
			e[0].op_context = err.e.op_context;
			n = e[0].op_context != NULL;
		} else if (n < 0 && n != -FI_EAGAIN) {
			break;
		}
		for (i = 0; i < n; i++) {
			const struct op *op = e[i].op_context;

			if (op->kind != OP_RECEIVED && op->kind <= OP_PASSTHROUGH_SEND)
				ce->sending--;
		}
	}
}

void ivs_core_disable(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;

	if (!ce)
		return;
	if (ce->ep) {
		flush(ep);
		if (ce->wait_fd >= 0)
			epoll_ctl(ep->domain->wake, EPOLL_CTL_DEL, ce->wait_fd, NULL);
		fi_close(&ce->ep->fid);
	}
	ivs_fetch_free(ep);
	if (ce->mr)
		fi_close(&ce->mr->fid);
	if (ce->cq)
		fi_close(&ce->cq->fid);
	if (ce->av)
		fi_close(&ce->av->fid);
	if (ce->domain)
		fi_close(&ce->domain->fid);
	if (ce->general)
		ep->fid.tagged = ce->general;
	ivs_passthrough_free(ce);
	free(ce->buffers);
	free(ce);
	ep->core = NULL;
}

static void failed(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct buffer *b;
	struct op *op;

	memset(&err, 0, sizeof(err));
	if (fi_cq_readerr(ce->cq, &err.e, 0) != 1)
		return;
	op = err.e.op_context;
	if (!op)
		return;
	switch (op->kind) {
	case OP_RECEIVED:
		if (err.e.err != FI_ECANCELED)
			ivs_wire_post(ce, ivs_entry(op, struct buffer, op));
		return;
	case OP_SENT:
	case OP_ASKED:
		b = ivs_entry(op, struct buffer, op);
		ivs_wire_sent(ce, b);
		IVS_INFO(FI_LOG_EP_DATA, "a rank on another host is gone: %s\n", ivs_lib.strerror(err.e.err));
		ivs_peer_condemn(b->peer);
		return;
	case OP_FETCH: ivs_fetch_done(ce, op, err.e.err ? err.e.err : FI_EIO); return;
	default: ivs_passthrough_failed(ep, op, &err.e);
	}
}

int ivs_core_poll(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct sink nobody = { .cq = NULL };

	if (!ce)
		return 0;
	/*
	 * A poll costs a system call or more: rare while no peer is on another host, and frequent where the next
	 * message is near.
	 */
	if (ep->me && ++ce->ticks - ce->came > IVS_CORE_NEXT_TICKS &&
	    ce->ticks % (ce->busy ? IVS_CORE_BUSY_TICKS : IVS_CORE_IDLE_TICKS))
		return 0;
	return ivs_core_read(ep, &nobody);
}

int ivs_core_read(struct ivs_ep *ep, struct sink *sink)
{
	struct core_ep *ce = ep->core;
	struct fi_cq_tagged_entry e[16];
	fi_addr_t src[16];
	int done = 0;
	ssize_t n, i;

	if (unlikely(ce->held != NULL))
		done += ivs_wire_held(ep);
	if (unlikely(!ivs_list_empty(&ce->stalled)))
		done += ivs_fetch_stalled(ce);
	n = ce->sources ? fi_cq_readfrom(ce->cq, e, 16, src) : fi_cq_read(ce->cq, e, 16);
	if (unlikely(n == -FI_EAVAIL)) {
		failed(ep);
		return done + 1;
	}
	for (i = 0; i < n; i++) {
		struct op *op = e[i].op_context;

		if (likely(op->kind >= OP_PASSTHROUGH_SEND)) {
			/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): src is filled where there are sources */
			ivs_passthrough_done(ep, op, &e[i], ce->sources ? src[i] : FI_ADDR_NOTAVAIL, sink);
			done++;
		} else if (op->kind == OP_RECEIVED) {
			struct buffer *b = ivs_entry(op, struct buffer, op);

			b->got = (uint32_t) e[i].len;
			done += ivs_wire_received(ep, b);
		} else if (op->kind == OP_FETCH) {
			ivs_fetch_done(ce, op, 0);
			done++;
		} else {
			ivs_wire_sent(ce, ivs_entry(op, struct buffer, op));
		}
	}
	return done;
}

bool ivs_core_sleep(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct fid *fids[1];
	int i;

	for (i = 0; ce && i < 16; i++) {
		ce->ticks = UINT32_MAX;
		if (!ivs_core_poll(ep))
			break;
	}
	if (!ce)
		return true;
	if (ce->wait_fd < 0 || ce->held || !ivs_list_empty(&ce->stalled))
		return false;
	fids[0] = &ce->cq->fid;
	return !fi_trywait(ce->core->fabric, fids, 1);
}
