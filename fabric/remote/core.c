#include <sched.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <sys/epoll.h>

#include "remote/core_ep.h"
#include "remote/named.h"
#include "remote/nearest.h"
#include "tune.h"

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
	return ivs_param.core && *ivs_param.core;
}

static bool named(void)
{
	return asked() && strcmp(ivs_param.core, "auto");
}

static bool refused(void)
{
	return named() && !strcmp(ivs_param.core, "none");
}

bool ivs_core_wanted(void)
{
	return !refused();
}

/* The number of this rank among those of its VM, by what launchers say; 0: unknown. */
static unsigned long local_rank(void)
{
	long n;

	if ((is_number("OMPI_COMM_WORLD_LOCAL_RANK", &n) || is_number("MPI_LOCALRANKID", &n) ||
	     is_number("SLURM_LOCALID", &n)) && n >= 0)
		return (unsigned long) n;
	return 0;
}

/* Is name a word of list, between commas? */
static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *s = list; (s = strstr(s, name)); s += len)
		if ((s == list || s[-1] == ',') && (s[len] == ',' || !s[len]))
			return true;
	return false;
}

/*
 * Leaves in *info what the core provider offers for one device, of those that FI_IVSHMEM_DEVICES
 * names: the rank's own node is known only here, once its launcher has bound it. Nothing
 * changes if none of them is offered, or none is named.
 */
static void choose_device(struct fi_info **info)
{
	const char *names[IVS_NEAREST_MAX];
	struct fi_info *of[IVS_NEAREST_MAX], *chosen;
	cpu_set_t cpus[IVS_NEAREST_CPUS / 8 / sizeof(cpu_set_t)];
	size_t n = 0, i;

	if (!ivs_param.devices)
		return;
	for (struct fi_info *f = *info; f && n < IVS_NEAREST_MAX; f = f->next) {
		const char *name = f->domain_attr->name;

		for (i = 0; name && i < n && strcmp(names[i], name); i++)
			;
		if (name && i == n && listed(ivs_param.devices, name)) {
			names[n] = name;
			of[n++] = f;
		}
	}
	if (!n)
		return;
	i = ivs_nearest("/sys", names, n, sched_getaffinity(0, sizeof(cpus), cpus) ? NULL : cpus,
			local_rank());
	chosen = ivs_lib.dupinfo(of[i]);
	if (!chosen)
		return;
	ivs_lib.freeinfo(*info);
	*info = chosen;
}

/* inject: bytes of a message that it is to copy at once, 0: as it likes. */
static int ask_info(const char *name, uint64_t caps, size_t inject, struct fi_info **info)
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
	if (!hints->fabric_attr->prov_name) {
		ivs_lib.freeinfo(hints);
		return -FI_ENOMEM;
	}
	hints->caps = caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->inject_size = inject;
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
	/* No thread of its own: we poll often enough. */
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	ret = ivs_named(version, flags, hints, info);
	ivs_lib.freeinfo(hints);
	if (ret)
		return ret;
	choose_device(info);
	if (!*info || (*info)->ep_attr->max_msg_size < sizeof(((struct buffer *) 0)->data)) {
		ivs_lib.freeinfo(*info);
		return -FI_ENODATA;
	}
	return 0;
}

/*
 * Over verbs ofi_rxm copies what it sends at once, but takes that as injected only where its caller asks for it: by itself,
 * up to what verbs takes in line. It refuses more than FI_OFI_RXM_BUFFER_SIZE.
 */
static int try_info(const char *name, uint64_t caps, struct fi_info **info)
{
	int ret = -FI_ENODATA;

	if (caps & FI_RMA && !strcmp(name, "verbs;ofi_rxm"))
		ret = ask_info(name, caps, IVS_CORE_GATHER_MAX, info);
	return ret ? ask_info(name, caps, 0, info) : 0;
}

/* With a region matching is ours: large messages are then read (fetch.h). */
static int try_open(const char *name, uint64_t caps, bool reads, struct ivs_core *in)
{
	int ret = try_info(name, FI_MSG | FI_TAGGED | (reads ? FI_RMA : 0) | caps, &in->info);

	in->reads = !ret && reads;
	if (ret && reads && named())
		ret = try_info(name, FI_MSG | FI_TAGGED | caps, &in->info);

	/* ofi_rxm over tcp (seen: 1.17) drops the connection when a message is cut short. */
	in->tagged = !ret && strcmp(name, "tcp;ofi_rxm") &&
		     in->info->ep_attr->mem_tag_format >> 63 &&
		     in->info->tx_attr->iov_limit >= IVS_IOV_MAX &&
		     in->info->rx_attr->iov_limit >= IVS_IOV_MAX;
	if (!ret && !in->tagged)
		ivs_lib.freeinfo(in->info);
	if (!in->tagged) {
		ret = try_info(name, FI_MSG | (reads ? FI_RMA : 0), &in->info);
		in->reads = !ret && reads;
		if (ret && reads && named())
			ret = try_info(name, FI_MSG, &in->info);
	}
	if (ret)
		return ret;
	/* Then the memory that it reads into would have to be registered. */
	if (in->info->domain_attr->mr_mode & FI_MR_LOCAL)
		in->reads = false;
	/* Over tcp there is nothing that arrives only if all before it has, and that the receiver need not handle. */
	in->injects = in->reads && !strncmp(name, "verbs", 5);
	ret = ivs_lib.fabric(in->info->fabric_attr, &in->fabric, NULL);
	if (!ret)
		ret = fi_domain(in->fabric, in->info, &in->spare, NULL);
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

int ivs_core_open(struct ivs_domain *domain, struct ivs_core **out)
{
	uint64_t caps = domain->caps & (FI_DIRECTED_RECV | FI_SOURCE);
	struct ivs_core *in;
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
		ret = try_open(ivs_param.core, caps, domain->region, in);
	else
		for (i = 0; ret && i < sizeof(candidates) / sizeof(candidates[0]); i++)
			ret = try_open(candidates[i], caps, domain->region, in);
	if (ret) {
		IVS_WARN(FI_LOG_DOMAIN, "no provider for ranks on other hosts%s%s: %s\n",
			 named() ? " named " : "", named() ? ivs_param.core : "",
			 ivs_lib.strerror(-ret));
		free(in);
		return ret;
	}
	IVS_INFO(FI_LOG_DOMAIN, "ranks on other hosts are reached over %s, device %s\n",
		 in->info->fabric_attr->prov_name,
		 in->info->domain_attr->name ? in->info->domain_attr->name : "unknown");
	*out = in;
	return 0;
}

void ivs_core_close(struct ivs_core *in)
{
	if (in->spare)
		fi_close(&in->spare->fid);
	fi_close(&in->fabric->fid);
	ivs_lib.freeinfo(in->info);
	free(in);
}

bool ivs_core_passthrough(const struct ivs_domain *domain)
{
	return domain->core && domain->core->tagged;
}

static int post(struct core_ep *ce, struct buffer *b)
{
	return (int) fi_recv(ce->ep, b->data, sizeof(b->data), ce->mr ? fi_mr_desc(ce->mr) : NULL,
			     FI_ADDR_UNSPEC, &b->op.context);
}

/* The core provider's completions end a sleep, too. */
static void wakes(struct ivs_ep *ep, struct core_ep *ce)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (fi_control(&ce->cq->fid, FI_GETWAIT, &ce->wait_fd) ||
	    epoll_ctl(ep->domain->wake, EPOLL_CTL_ADD, ce->wait_fd, &ev))
		ce->wait_fd = -1;
}

/*
 * Each endpoint has a domain of the core provider for itself. tcp (seen: 2.5) keeps the messages that
 * came early in a list of the domain: a receive of one endpoint would take another one's.
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
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024,
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
	/* Beyond that injection costs a copy: it is for send_gathered() alone. */
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
		ret = fi_mr_reg(ce->domain, ce->buffers, 2 * IVS_CORE_BUFFERS * sizeof(*ce->buffers),
				FI_SEND | FI_RECV, 0, 0, 0, &ce->mr, NULL);
	if (!ret)
		ret = fi_getname(&ce->ep->fid, ep->addr.core, &len);
	/* Without FI_MR_LOCAL: the application's memory is not registered. */
	if (in->info->tx_attr->iov_limit >= 2 && !ce->mr)
		ce->gathers = in->info->tx_attr->inject_size;
	for (i = 0; !ret && i < IVS_CORE_BUFFERS; i++) {
		ce->buffers[i].op.kind = OP_RECEIVED;
		ret = post(ce, &ce->buffers[i]);
		ce->buffers[IVS_CORE_BUFFERS + i].op.kind = OP_SENT;
		ce->buffers[IVS_CORE_BUFFERS + i].next = ce->free;
		ce->free = &ce->buffers[IVS_CORE_BUFFERS + i];
	}
	if (ret) {
		IVS_WARN(FI_LOG_EP_CTRL, "provider %s: %s\n", in->info->fabric_attr->prov_name,
			 ivs_lib.strerror(-ret));
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

/*
 * Has all arrived that went before? That is asked by a write of no bytes, to no address: the peer's device answers it in
 * its turn, and its program does not see it. A message might come while the program closes its endpoint, which libfabric
 * 1.17's ofi_rxm over verbs does not survive.
 */
static ssize_t ask(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;
	struct buffer *b = ce->free;
	struct fi_rma_iov nowhere = { 0 };
	struct iovec nothing = { 0 };
	struct fi_msg_rma m = { .msg_iov = &nothing, .iov_count = 1, .addr = peer->core_addr,
				.rma_iov = &nowhere, .rma_iov_count = 1 };
	ssize_t ret;

	if (!b)
		return -FI_EAGAIN;
	nothing.iov_base = b->data;
	m.context = &b->op.context;
	ret = fi_writemsg(ce->ep, &m, FI_INJECT | FI_COMPLETION);
	if (ret)
		return ret;
	ce->sending++;
	ce->free = b->next;
	b->peer = peer;
	b->op.kind = OP_ASKED;
	b->upto = peer->core_sent;
	peer->core_asked = true;
	return 0;
}

bool ivs_core_check(struct ivs_peer *peer)
{
	ssize_t ret;

	/* Mostly the next message says it. */
	if (!peer->core_unsure || peer->core_asked || peer->core_checked != peer->core_sent) {
		peer->core_checked = peer->core_sent;
		peer->core_lost_ms = 0;
		return true;
	}
	ret = ask(peer);
	if (ret && ret != -FI_EAGAIN)
		peer->core_unsure = false;
	if (ret != -FI_EAGAIN) {
		peer->core_lost_ms = 0;
		return true;
	}
	/* The message had a connection. */
	if (!peer->core_lost_ms)
		peer->core_lost_ms = ivs_now_ms();
	return ivs_now_ms() - peer->core_lost_ms < ivs_param.timeout;
}

/* What was accepted for sending is on its way before the end. */
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

		if (p->core_unsure && !p->core_asked && p->channel == IVS_CHAN_CORE)
			ask(p);
	}
	while (ce->sending && ivs_now_ms() - start < 1000) {
		n = fi_cq_read(ce->cq, e, 16);
		memset(&err, 0, sizeof(err));
		if (n == -FI_EAVAIL && fi_cq_readerr(ce->cq, &err.e, 0) == 1) {
			/* One peer's end: the others may still be there. */
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

/*
 * The core provider itself gathers a message that it copies at once anyway: 540 of 27,200 instructions less at 16 KiB. Its
 * completion has still to come.
 */
static __attribute__((noinline)) ssize_t
send_gathered(struct core_ep *ce, struct buffer *b, size_t head, void *payload, size_t len, fi_addr_t to)
{
	struct iovec iov[2] = { { b->data, head }, { payload, len } };
	struct fi_msg m = { .msg_iov = iov, .iov_count = 2, .addr = to, .context = &b->op.context };

	return fi_sendmsg(ce->ep, &m, FI_INJECT | FI_COMPLETION);
}

/*
 * A short message goes without a completion, which would take 116 of 7,332 instructions (8 B), unless the one before it
 * did and may not have arrived. The peer's next message says how many it has handled. Else the completion of our own next
 * one says it, or that of a question.
 */
static int send_wire(struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
	       uint16_t fixed_len, const struct iovec *iov, size_t count, size_t offset,
	       size_t len)
{
	struct core_ep *ce = peer->ep->core;
	struct buffer *b = ce->free;
	struct wire w = { .uid = ce->uid, .tag = tag, .op = op, .flags = flags,
			  .fixed_len = fixed_len, .len = (uint32_t) len,
			  .seq = peer->core_sent, .seen = peer->core_seen };
	size_t bytes = sizeof(w) + fixed_len + len;
	ssize_t ret;

	if (!b || bytes > sizeof(b->data))
		return b ? -FI_EMSGSIZE : -FI_EAGAIN;
	memcpy(b->data, &w, sizeof(w));
	if (fixed_len)
		memcpy(b->data + sizeof(w), fixed, fixed_len);
	if (bytes <= IVS_CORE_INJECT_MAX && ce->core->injects && !peer->core_unsure && op != OP_HELLO) {
		ivs_iov_gather(b->data + sizeof(w) + fixed_len, len, iov, count, offset);
		ret = fi_inject(ce->ep, b->data, bytes, peer->core_addr);
		if (ret)
			return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
		peer->core_unsure = true;
		peer->core_sent++;
		return 0;
	}
	b->peer = peer;
	if (len >= IVS_CORE_GATHER_MIN && bytes <= ce->gathers && count == 1) {
		ret = send_gathered(ce, b, bytes - len, (char *) iov->iov_base + offset, len, peer->core_addr);
	} else {
		ivs_iov_gather(b->data + sizeof(w) + fixed_len, len, iov, count, offset);
		ret = fi_send(ce->ep, b->data, bytes, ce->mr ? fi_mr_desc(ce->mr) : NULL, peer->core_addr, &b->op.context);
	}
	if (ret)
		return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
	ce->sending++;
	ce->free = b->next;
	if (op != OP_HELLO)
		peer->core_sent++;
	/* Its own completion is that of those before it, too. */
	peer->core_unsure = false;
	return 0;
}

int ivs_core_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	return send_wire(peer, pkt->op, pkt->flags, pkt->tag, pkt->fixed, pkt->fixed_len, pkt->iov,
		   pkt->count, pkt->offset, pkt->len);
}

/*
 * Has it the form of our own one? Once libfabric 1.17's AV has seen an address of another family, it takes none any
 * more.
 */
static bool alike(const struct core_ep *ce, const struct ivs_addr *addr, const struct ivs_addr *own)
{
	switch (ce->core->info->addr_format) {
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
	case FI_SOCKADDR_IB:
		return addr->core_len == own->core_len && !memcmp(addr->core, own->core, sizeof(sa_family_t));
	default:
		return addr->core_len == own->core_len;
	}
}

bool ivs_core_address(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;

	if (peer->core_addr != FI_ADDR_NOTAVAIL)
		return true;
	if (!peer->addr.core_len || !alike(ce, &peer->addr, &peer->ep->addr) ||
	    fi_av_insert(ce->av, peer->addr.core, 1, &peer->core_addr, 0, NULL) != 1) {
		peer->core_addr = FI_ADDR_NOTAVAIL;
		return false;
	}
	ivs_passthrough_known(ce, peer);
	return true;
}

int ivs_core_connect(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;
	struct iovec iov = { &peer->ep->addr, sizeof(peer->ep->addr) };

	if (!ce || !peer->addr.core_len) {
		IVS_WARN(FI_LOG_EP_CTRL, "a rank is on another host, and there is no provider to "
			 "reach it; set FI_IVSHMEM_CORE, or give the VMs a region\n");
		return -FI_EHOSTUNREACH;
	}
	if (peer->addr.kind == IVS_ADDR_TAGGED && !ce->core->tagged) {
		IVS_WARN(FI_LOG_EP_CTRL, "a rank without a region needs tagged messages, which "
			 "%s does not have here\n", ce->core->info->fabric_attr->prov_name);
		return -FI_EHOSTUNREACH;
	}
	if (!ivs_core_address(peer))
		return -FI_EHOSTUNREACH;
	ce->busy = true;
	peer->piece = PIECE;
	/* Our address, before anything else. */
	return send_wire(peer, OP_HELLO, 0, 0, NULL, 0, &iov, 1, 0, sizeof(peer->ep->addr));
}

static struct ivs_peer *find_uid(struct core_ep *ce, uint64_t uid)
{
	struct ivs_peer *p = ce->by_uid[uid & (UIDS - 1)];

	while (p && p->core_uid != uid)
		p = p->core_next;
	return p;
}

static void hello(struct ivs_ep *ep, uint64_t uid, const uint8_t *payload, size_t len)
{
	struct core_ep *ce = ep->core;
	struct ivs_addr addr;
	struct ivs_peer *p;

	if (len != sizeof(addr) || find_uid(ce, uid))
		return;
	memcpy(&addr, payload, sizeof(addr));
	if (addr.core_len > sizeof(addr.core))
		return;
	p = ce->ops->peer_by_addr(ep, &addr);
	if (!p || p->core_uid)
		return;
	p->core_uid = uid;
	p->core_next = ce->by_uid[uid & (UIDS - 1)];
	ce->by_uid[uid & (UIDS - 1)] = p;
	/* A receive that takes its message could not be ended: no answer would reach it, and nothing can be read from it. */
	if (!ivs_core_address(p))
		p->broken = true;
}

/* Returns false if the message has to wait for another, or for room. */
static bool handle(struct ivs_ep *ep, struct buffer *b)
{
	struct core_ep *ce = ep->core;
	const uint8_t *fixed = b->data + sizeof(struct wire);
	struct ivs_peer *peer;
	struct wire w;
	bool rts;

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
	peer = find_uid(ce, w.uid);
	if (!peer)
		return false;
	if (peer->broken || peer->channel == IVS_CHAN_DEAD)
		return true;
	if (w.seen == peer->core_sent)
		peer->core_unsure = false;
	/* Not more ahead than there are buffers, and never an old one. */
	if (w.seq != peer->core_seen)
		return w.seq - peer->core_seen > IVS_CORE_BUFFERS;
	rts = w.op == IVS_OP_TAGGED_RTS || w.op == IVS_OP_MSG_RTS;
	if (w.op >= IVS_OP_COUNT || w.flags & (IVS_F_BOUNCE | IVS_F_REGION) || rts != !!(w.flags & IVS_F_CORE) ||
	    w.fixed_len != ivs_fixed_bytes(w.op, w.flags)) {
		IVS_WARN(FI_LOG_EP_DATA, "a message of no kind came over the network\n");
		peer->core_seen++;
		return true;
	}
	if (!ce->ops->receive(ep, peer, w.op, w.flags, w.tag, fixed, fixed + w.fixed_len, w.len))
		return false;
	peer->core_seen++;
	return true;
}

/* Says of each rank that has messages here whether the one whose turn it is, is here, too; forgets it again with false. */
static void note_turns(struct core_ep *ce, bool note)
{
	struct ivs_peer *peer;
	struct buffer *b;
	struct wire w;

	for (b = ce->held; b; b = b->next) {
		memcpy(&w, b->data, sizeof(w));
		peer = find_uid(ce, w.uid);
		if (peer && w.seq == peer->core_seen)
			peer->core_turn = note;
	}
}

/*
 * Every buffer holds a message that has to wait, and nothing can come. Where the first one of a rank waits for room, the others
 * wait for it. A first one that is not here had its buffer before the others: it is on its way, or it never was sent. So whoever
 * has only others here lies, and the other ranks get the buffers.
 */
static void refuse_held(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct buffer **at = &ce->held, *b;
	struct ivs_peer *peer;
	struct wire w;

	note_turns(ce, true);
	while ((b = *at)) {
		memcpy(&w, b->data, sizeof(w));
		peer = find_uid(ce, w.uid);
		if (peer && peer->core_turn) {
			at = &b->next;
			continue;
		}
		if (peer && !peer->broken) {
			IVS_WARN(FI_LOG_EP_DATA, "a rank on another host sent messages that wait for one that does not come; "
				 "its messages are ignored from now on\n");
			peer->broken = true;
			ivs_peer_condemn(peer);
		}
		*at = b->next;
		ce->held_count--;
		post(ce, b);
	}
	note_turns(ce, false);
}

/* Those whose turn has come. */
static int handle_held(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct buffer **at = &ce->held, *b;
	int done = 0;

	while ((b = *at) && ivs_cq_count(ep->rx_cq) < ep->rx_cq->size) {
		if (!handle(ep, b)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		ce->held_count--;
		post(ce, b);
		done++;
		/* It may have been what others were waiting for. */
		at = &ce->held;
	}
	if (unlikely(ce->held_count == IVS_CORE_BUFFERS) && !b)
		refuse_held(ep);
	return done;
}

static void sent(struct core_ep *ce, struct buffer *b)
{
	ce->sending--;
	b->next = ce->free;
	ce->free = b;
	if (unlikely(b->op.kind == OP_ASKED)) {
		b->op.kind = OP_SENT;
		b->peer->core_asked = false;
		if (b->upto == b->peer->core_sent)
			b->peer->core_unsure = false;
	}
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
			post(ce, ivs_entry(op, struct buffer, op));
		return;
	case OP_SENT:
	case OP_ASKED:
		b = ivs_entry(op, struct buffer, op);
		sent(ce, b);
		IVS_INFO(FI_LOG_EP_DATA, "a rank on another host is gone: %s\n",
			 ivs_lib.strerror(err.e.err));
		ivs_peer_condemn(b->peer);
		return;
	case OP_FETCH:
		ivs_fetch_done(ce, op, err.e.err ? err.e.err : FI_EIO);
		return;
	default:
		ivs_passthrough_failed(ep, op, &err.e);
	}
}

/* A message to us: handled now, or kept until its turn has come. */
static int received(struct ivs_ep *ep, struct buffer *b)
{
	struct core_ep *ce = ep->core;
	struct buffer **end;
	int done = 0;

	ce->busy = true;
	ce->came = ce->ticks;
	if (ivs_cq_count(ep->rx_cq) < ep->rx_cq->size && handle(ep, b)) {
		post(ce, b);
		done++;
		if (ce->held)
			done += handle_held(ep);
		return done;
	}
	b->next = NULL;
	for (end = &ce->held; *end; end = &(*end)->next)
		;
	*end = b;
	ce->held_count++;
	return done;
}

int ivs_core_poll(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct sink nobody = { .cq = NULL };

	if (!ce)
		return 0;
	/* A poll costs a system call or more: seldom while no peer is on another host, and often where the next message is near. */
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
		done += handle_held(ep);
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
			ivs_passthrough_done(ep, op, &e[i], ce->sources ? src[i] : FI_ADDR_NOTAVAIL,
					 sink);
			done++;
		} else if (op->kind == OP_RECEIVED) {
			struct buffer *b = ivs_entry(op, struct buffer, op);

			b->got = (uint32_t) e[i].len;
			done += received(ep, b);
		} else if (op->kind == OP_FETCH) {
			ivs_fetch_done(ce, op, 0);
			done++;
		} else {
			sent(ce, ivs_entry(op, struct buffer, op));
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
