#include <stdio.h>
#include <sys/random.h>

#include <sys/epoll.h>

#include "inner_ep.h"

#define IDLE_TICKS	1024	/* calls between two looks while nobody is far away */
#define BUSY_TICKS	8	/* and while somebody is, and the region is used, too */

static const char *const candidates[] = { "verbs;ofi_rxm", "efa", "tcp", "tcp;ofi_rxm" };

static bool is_number(const char *name, long *value)
{
	const char *s = getenv(name);

	if (!s || !*s)
		return false;
	*value = strtol(s, NULL, 10);
	return true;
}

/* Does the launcher say that the job has ranks elsewhere? */
static bool several_nodes(void)
{
	long here, all;

	if (is_number("OMPI_COMM_WORLD_LOCAL_SIZE", &here) &&
	    is_number("OMPI_COMM_WORLD_SIZE", &all))
		return here < all;
	if (is_number("MPI_LOCALNRANKS", &here) && is_number("PMI_SIZE", &all))
		return here < all;
	if (is_number("SLURM_STEP_NUM_NODES", &all) || is_number("SLURM_NNODES", &all))
		return all > 1;
	return false;
}

/* Is one asked for at all events, be it by "auto"? */
static bool asked(void)
{
	return ivs_param.inner && *ivs_param.inner;
}

static bool named(void)
{
	return asked() && strcmp(ivs_param.inner, "auto");
}

static bool refused(void)
{
	return named() && !strcmp(ivs_param.inner, "none");
}

bool ivs_inner_wanted(void)
{
	return !refused();
}

static int try_info(const char *name, uint64_t caps, struct fi_info **info)
{
	struct fi_info *hints = ivs_lib.dupinfo(NULL);
	uint32_t version = ivs_lib.version < FI_VERSION(1, 9) ? ivs_lib.version : FI_VERSION(1, 9);
	/*
	 * FI_PROVIDER=ivshmem hides all the others from ordinary calls. A core provider is
	 * asked for by itself, or a utility provider would come on top of it.
	 */
	uint64_t flags = IVS_HIDDEN | (strchr(name, ';') ? 0 : IVS_CORE_ONLY);
	int ret;

	if (!hints)
		return -FI_ENOMEM;
	hints->fabric_attr->prov_name = strdup(name);
	hints->caps = caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	if (caps & FI_TAGGED) {
		/* The application's memory as it is, and its CQ data. */
		hints->domain_attr->av_type = FI_AV_TABLE;
		hints->domain_attr->cq_data_size = sizeof(uint64_t);
	} else {
		hints->domain_attr->mr_mode |= FI_MR_LOCAL;
	}
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	/* No thread of its own: we look often enough. */
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	ret = ivs_lib.getinfo(version, NULL, NULL, flags, hints, info);
	ivs_lib.freeinfo(hints);
	if (!ret && (*info)->ep_attr->max_msg_size < sizeof(((struct buffer *) 0)->data)) {
		ivs_lib.freeinfo(*info);
		ret = -FI_ENODATA;
	}
	return ret;
}

static int try_open(const char *name, uint64_t caps, struct ivs_inner *in)
{
	int ret = try_info(name, FI_MSG | FI_TAGGED | caps, &in->info);

	/* ofi_rxm over tcp (seen: 1.17) drops the connection when a message is cut short. */
	in->tagged = !ret && strcmp(name, "tcp;ofi_rxm") &&
		     in->info->ep_attr->mem_tag_format >> 63 &&
		     in->info->tx_attr->iov_limit >= IVS_IOV_MAX &&
		     in->info->rx_attr->iov_limit >= IVS_IOV_MAX;
	if (!ret && !in->tagged)
		ivs_lib.freeinfo(in->info);
	if (!in->tagged)
		ret = try_info(name, FI_MSG, &in->info);
	if (ret)
		return ret;
	ret = ivs_lib.fabric(in->info->fabric_attr, &in->fabric, NULL);
	if (!ret)
		ret = fi_domain(in->fabric, in->info, &in->domain, NULL);
	if (!ret)
		return 0;
	IVS_INFO(FI_LOG_DOMAIN, "provider %s cannot be used: %s\n", name,
		 ivs_lib.strerror(-ret));
	if (in->fabric)
		fi_close(&in->fabric->fid);
	ivs_lib.freeinfo(in->info);
	memset(in, 0, sizeof(*in));
	return ret;
}

int ivs_inner_open(struct ivs_domain *domain, struct ivs_inner **out)
{
	uint64_t caps = domain->caps & (FI_DIRECTED_RECV | FI_SOURCE);
	struct ivs_inner *in;
	int ret = -FI_ENODATA;
	size_t i;

	*out = NULL;
	/* Alone on this host, with a region: there is nobody to reach. */
	if (refused() || (domain->region && !asked() && !several_nodes()))
		return -FI_ENODATA;
	in = calloc(1, sizeof(*in));
	if (!in)
		return -FI_ENOMEM;
	if (named())
		ret = try_open(ivs_param.inner, caps, in);
	else
		for (i = 0; ret && i < sizeof(candidates) / sizeof(candidates[0]); i++)
			ret = try_open(candidates[i], caps, in);
	if (ret) {
		IVS_WARN(FI_LOG_DOMAIN, "no provider for ranks on other hosts%s%s: %s\n",
			 named() ? " named " : "", named() ? ivs_param.inner : "",
			 ivs_lib.strerror(-ret));
		free(in);
		return ret;
	}
	IVS_INFO(FI_LOG_DOMAIN, "ranks on other hosts are reached over %s\n",
		 in->info->fabric_attr->prov_name);
	*out = in;
	return 0;
}

void ivs_inner_close(struct ivs_inner *in)
{
	fi_close(&in->domain->fid);
	fi_close(&in->fabric->fid);
	ivs_lib.freeinfo(in->info);
	free(in);
}

bool ivs_inner_through(const struct ivs_domain *domain)
{
	return domain->inner && domain->inner->tagged;
}

static int post(struct inner_ep *ie, struct buffer *b)
{
	return (int) fi_recv(ie->ep, b->data, sizeof(b->data), ie->mr ? fi_mr_desc(ie->mr) : NULL,
			     FI_ADDR_UNSPEC, &b->op.context);
}

/* What the inner provider has to say ends a sleep, too. */
static void wakes(struct ivs_ep *ep, struct inner_ep *ie)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (fi_control(&ie->cq->fid, FI_GETWAIT, &ie->wait_fd) ||
	    epoll_ctl(ep->domain->wake, EPOLL_CTL_ADD, ie->wait_fd, &ev))
		ie->wait_fd = -1;
}

int ivs_inner_enable(struct ivs_ep *ep)
{
	struct ivs_inner *in = ep->domain->inner;
	bool waits = ep->tx_cq->wait.epoll >= 0 || ep->rx_cq->wait.epoll >= 0;
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024,
				 .wait_obj = waits ? FI_WAIT_FD : FI_WAIT_NONE };
	struct fi_av_attr av = { .type = in->info->domain_attr->av_type };
	struct inner_ep *ie = aligned_alloc(64, (sizeof(*ie) + 63) & ~(size_t) 63);
	size_t len = sizeof(ep->addr.inner);
	int ret, i;

	if (!ie)
		return -FI_ENOMEM;
	memset(ie, 0, sizeof(*ie));
	ep->inner = ie;
	ie->inner = in;
	ie->inject = in->info->tx_attr->inject_size;
	ie->wait_fd = -1;
	ivs_list_init(&ie->receives);
	if (getrandom(&ie->uid, sizeof(ie->uid), 0) != sizeof(ie->uid))
		ie->uid = (uintptr_t) ie ^ ivs_now_ms() << 20;
	ie->buffers = calloc(2 * BUFFERS, sizeof(*ie->buffers));
	ret = ie->buffers ? 0 : -FI_ENOMEM;
	if (!ret)
		ret = fi_av_open(in->domain, &av, &ie->av, NULL);
	if (!ret) {
		ret = fi_cq_open(in->domain, &cq, &ie->cq, NULL);
		if (ret && waits) {
			cq.wait_obj = FI_WAIT_NONE;
			ret = fi_cq_open(in->domain, &cq, &ie->cq, NULL);
		}
	}
	if (!ret)
		ret = fi_endpoint(in->domain, in->info, &ie->ep, NULL);
	if (!ret)
		ret = fi_ep_bind(ie->ep, &ie->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(ie->ep, &ie->cq->fid, FI_TRANSMIT | FI_RECV);
	if (!ret)
		ret = fi_enable(ie->ep);
	if (!ret && in->info->domain_attr->mr_mode & FI_MR_LOCAL)
		ret = fi_mr_reg(in->domain, ie->buffers, 2 * BUFFERS * sizeof(*ie->buffers),
				FI_SEND | FI_RECV, 0, 0, 0, &ie->mr, NULL);
	if (!ret)
		ret = fi_getname(&ie->ep->fid, ep->addr.inner, &len);
	for (i = 0; !ret && i < BUFFERS; i++) {
		ie->buffers[i].op.kind = OP_RECEIVED;
		ret = post(ie, &ie->buffers[i]);
		ie->buffers[BUFFERS + i].op.kind = OP_SENT;
		ie->buffers[BUFFERS + i].next = ie->free;
		ie->free = &ie->buffers[BUFFERS + i];
	}
	if (ret) {
		IVS_WARN(FI_LOG_EP_CTRL, "provider %s: %s\n", in->info->fabric_attr->prov_name,
			 ivs_lib.strerror(-ret));
		ivs_inner_disable(ep);
		return ret;
	}
	ep->addr.inner_len = (uint8_t) len;
	ep->through = !ep->domain->region && in->tagged;
	ie->sources = ep->through && ep->caps & FI_SOURCE;
	if (ep->through) {
		ep->addr.kind = IVS_ADDR_TAGGED;
		ivs_through_plain(ep);
	}
	if (cq.wait_obj == FI_WAIT_FD)
		wakes(ep, ie);
	return 0;
}

void ivs_inner_disable(struct ivs_ep *ep)
{
	struct inner_ep *ie = ep->inner;

	if (!ie)
		return;
	if (ie->ep) {
		uint64_t start = ivs_now_ms();

		/* What was accepted for sending is on its way before the end. */
		while (ie->sending && ivs_now_ms() - start < 1000) {
			struct fi_cq_tagged_entry e[16];
			ssize_t n = fi_cq_read(ie->cq, e, 16), i;

			for (i = 0; i < n; i++) {
				const struct op *op = e[i].op_context;

				if (op->kind == OP_SENT || op->kind == OP_THROUGH_SEND)
					ie->sending--;
			}
			if (n < 0 && n != -FI_EAGAIN)
				break;
		}
		if (ie->wait_fd >= 0)
			epoll_ctl(ep->domain->wake, EPOLL_CTL_DEL, ie->wait_fd, NULL);
		fi_close(&ie->ep->fid);
	}
	if (ie->mr)
		fi_close(&ie->mr->fid);
	if (ie->cq)
		fi_close(&ie->cq->fid);
	if (ie->av)
		fi_close(&ie->av->fid);
	ep->fid.tagged = &ivs_tagged_ops;
	ivs_through_free(ie);
	free(ie->buffers);
	free(ie);
	ep->inner = NULL;
}

static int put(struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
	       uint16_t fixed_len, const struct iovec *iov, size_t count, size_t offset,
	       size_t len)
{
	struct inner_ep *ie = peer->ep->inner;
	struct buffer *b = ie->free;
	struct wire w = { .uid = ie->uid, .tag = tag, .op = op, .flags = flags,
			  .fixed_len = fixed_len, .len = (uint32_t) len,
			  .seq = peer->inner_sent };
	size_t bytes = sizeof(w) + fixed_len + len;
	ssize_t ret;

	if (!b || bytes > sizeof(b->data))
		return b ? -FI_EMSGSIZE : -FI_EAGAIN;
	memcpy(b->data, &w, sizeof(w));
	if (fixed_len)
		memcpy(b->data + sizeof(w), fixed, fixed_len);
	ivs_iov_gather(b->data + sizeof(w) + fixed_len, len, iov, count, offset);
	b->peer = peer;
	ret = fi_send(ie->ep, b->data, bytes, ie->mr ? fi_mr_desc(ie->mr) : NULL,
		      peer->inner_addr, &b->op.context);
	if (ret)
		return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
	ie->sending++;
	ie->free = b->next;
	if (op != OP_HELLO)
		peer->inner_sent++;
	return 0;
}

int ivs_inner_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	return put(peer, pkt->op, pkt->flags, pkt->tag, pkt->fixed, pkt->fixed_len, pkt->iov,
		   pkt->count, pkt->offset, pkt->len);
}

bool ivs_inner_address(struct ivs_peer *peer)
{
	struct inner_ep *ie = peer->ep->inner;

	if (peer->inner_addr != FI_ADDR_NOTAVAIL)
		return true;
	if (!peer->addr.inner_len ||
	    fi_av_insert(ie->av, peer->addr.inner, 1, &peer->inner_addr, 0, NULL) != 1) {
		peer->inner_addr = FI_ADDR_NOTAVAIL;
		return false;
	}
	ivs_through_known(ie, peer);
	return true;
}

int ivs_inner_connect(struct ivs_peer *peer)
{
	struct inner_ep *ie = peer->ep->inner;
	struct iovec iov = { &peer->ep->addr, sizeof(peer->ep->addr) };

	if (!ie || !peer->addr.inner_len) {
		IVS_WARN(FI_LOG_EP_CTRL, "a rank is on another host, and there is no provider to "
			 "reach it; set FI_IVSHMEM_INNER, or give the VMs a region\n");
		return -FI_EHOSTUNREACH;
	}
	if (peer->addr.kind == IVS_ADDR_TAGGED && !ie->inner->tagged) {
		IVS_WARN(FI_LOG_EP_CTRL, "a rank without a region needs tagged messages, which "
			 "%s does not have here\n", ie->inner->info->fabric_attr->prov_name);
		return -FI_EHOSTUNREACH;
	}
	if (!ivs_inner_address(peer))
		return -FI_EHOSTUNREACH;
	ie->busy = true;
	peer->piece = PIECE;
	/* Who we are, before anything else. */
	return put(peer, OP_HELLO, 0, 0, NULL, 0, &iov, 1, 0, sizeof(peer->ep->addr));
}

static struct ivs_peer *find_uid(struct inner_ep *ie, uint64_t uid)
{
	struct ivs_peer *p = ie->by_uid[uid & (UIDS - 1)];

	while (p && p->inner_uid != uid)
		p = p->inner_next;
	return p;
}

static void hello(struct ivs_ep *ep, uint64_t uid, const uint8_t *payload, size_t len)
{
	struct inner_ep *ie = ep->inner;
	struct ivs_addr addr;
	struct ivs_peer *p;

	if (len != sizeof(addr) || find_uid(ie, uid))
		return;
	memcpy(&addr, payload, sizeof(addr));
	if (addr.inner_len > sizeof(addr.inner))
		return;
	p = ivs_peer_by_addr(ep, &addr);
	if (!p || p->inner_uid)
		return;
	p->inner_uid = uid;
	p->inner_next = ie->by_uid[uid & (UIDS - 1)];
	ie->by_uid[uid & (UIDS - 1)] = p;
}

/* Gives false if the message has to wait for another, or for room. */
static bool handle(struct ivs_ep *ep, struct buffer *b)
{
	struct inner_ep *ie = ep->inner;
	const uint8_t *fixed = b->data + sizeof(struct wire);
	struct ivs_peer *peer;
	struct wire w;

	if (b->got < sizeof(w))
		return true;
	memcpy(&w, b->data, sizeof(w));
	if (w.len > b->got || sizeof(w) + w.fixed_len + w.len != b->got) {
		IVS_WARN(FI_LOG_EP_DATA, "a malformed message came over the network\n");
		return true;
	}
	if (w.op == OP_HELLO) {
		hello(ep, w.uid, fixed + w.fixed_len, w.len);
		return true;
	}
	peer = find_uid(ie, w.uid);
	if (!peer)
		return false;
	if (peer->broken || peer->channel == IVS_CHAN_DEAD)
		return true;
	/* Not more ahead than there are buffers, and never one of the past. */
	if (w.seq != peer->inner_seen)
		return w.seq - peer->inner_seen > BUFFERS;
	if (w.op >= IVS_OP_COUNT || w.flags & (IVS_F_CHUNK | IVS_F_REGION) ||
	    w.op == IVS_OP_TAGGED_PULL || w.op == IVS_OP_MSG_PULL ||
	    w.fixed_len != ivs_fixed_bytes(w.op, w.flags)) {
		IVS_WARN(FI_LOG_EP_DATA, "a message of no kind came over the network\n");
		peer->inner_seen++;
		return true;
	}
	if (!ivs_receive(ep, peer, w.op, w.flags, w.tag, fixed, fixed + w.fixed_len, w.len))
		return false;
	peer->inner_seen++;
	return true;
}

/* Those whose turn has come. */
static int handle_held(struct ivs_ep *ep)
{
	struct inner_ep *ie = ep->inner;
	struct buffer **at = &ie->held, *b;
	int done = 0;

	while ((b = *at) && ivs_cq_count(ep->rx_cq) < ep->rx_cq->size) {
		if (!handle(ep, b)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		post(ie, b);
		done++;
		/* It may have been what others were waiting for. */
		at = &ie->held;
	}
	return done;
}

static void sent(struct inner_ep *ie, struct buffer *b)
{
	ie->sending--;
	b->next = ie->free;
	ie->free = b;
}

static void failed(struct ivs_ep *ep)
{
	struct inner_ep *ie = ep->inner;
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct buffer *b;
	struct op *op;

	memset(&err, 0, sizeof(err));
	if (fi_cq_readerr(ie->cq, &err.e, 0) != 1)
		return;
	op = err.e.op_context;
	if (!op)
		return;
	switch (op->kind) {
	case OP_RECEIVED:
		if (err.e.err != FI_ECANCELED)
			post(ie, ivs_entry(op, struct buffer, op));
		return;
	case OP_SENT:
		b = ivs_entry(op, struct buffer, op);
		sent(ie, b);
		IVS_INFO(FI_LOG_EP_DATA, "a rank on another host is gone: %s\n",
			 ivs_lib.strerror(err.e.err));
		ivs_peer_dead(b->peer, FI_EIO);
		return;
	default:
		ivs_through_failed(ep, op, &err.e);
	}
}

/* A message to us: handled now, or kept until its turn has come. */
static int received(struct ivs_ep *ep, struct buffer *b)
{
	struct inner_ep *ie = ep->inner;
	struct buffer **end;
	int done = 0;

	ie->busy = true;
	if (ivs_cq_count(ep->rx_cq) < ep->rx_cq->size && handle(ep, b)) {
		post(ie, b);
		done++;
		if (ie->held)
			done += handle_held(ep);
		return done;
	}
	b->next = NULL;
	for (end = &ie->held; *end; end = &(*end)->next)
		;
	*end = b;
	return done;
}

int ivs_inner_poll(struct ivs_ep *ep)
{
	struct inner_ep *ie = ep->inner;
	struct sink nobody = { .cq = NULL };

	if (!ie)
		return 0;
	/* A look costs a system call or more: seldom while nobody is far away. */
	if (ep->me && ++ie->ticks % (ie->busy ? BUSY_TICKS : IDLE_TICKS))
		return 0;
	return ivs_inner_read(ep, &nobody);
}

int ivs_inner_read(struct ivs_ep *ep, struct sink *sink)
{
	struct inner_ep *ie = ep->inner;
	struct fi_cq_tagged_entry e[16];
	fi_addr_t src[16];
	int done = 0;
	ssize_t n, i;

	if (unlikely(ie->held != NULL))
		done += handle_held(ep);
	n = ie->sources ? fi_cq_readfrom(ie->cq, e, 16, src) : fi_cq_read(ie->cq, e, 16);
	if (unlikely(n == -FI_EAVAIL)) {
		failed(ep);
		return done + 1;
	}
	for (i = 0; i < n; i++) {
		struct op *op = e[i].op_context;

		if (likely(op->kind >= OP_THROUGH_SEND)) {
			ivs_through_done(ep, op, &e[i], ie->sources ? src[i] : FI_ADDR_NOTAVAIL,
					 sink);
			done++;
		} else if (op->kind == OP_RECEIVED) {
			struct buffer *b = ivs_entry(op, struct buffer, op);

			b->got = e[i].len;
			done += received(ep, b);
		} else {
			sent(ie, ivs_entry(op, struct buffer, op));
		}
	}
	return done;
}

bool ivs_inner_sleep(struct ivs_ep *ep)
{
	struct inner_ep *ie = ep->inner;
	struct fid *fids[1];
	int i;

	for (i = 0; ie && i < 16; i++) {
		ie->ticks = UINT32_MAX;
		if (!ivs_inner_poll(ep))
			break;
	}
	if (!ie)
		return true;
	if (ie->wait_fd < 0 || ie->held)
		return false;
	fids[0] = &ie->cq->fid;
	return !fi_trywait(ie->inner->fabric, fids, 1);
}
