/*
 * floor: the least that a provider of libfabric can do for short messages between two ranks
 * of one host, so that what an MPI itself takes for one can be measured. A message is one
 * cache line, written and read once: its flag, tag, data and up to 40 bytes. The receive
 * that was posted first takes it. No matching (another tag ends the program), no longer
 * messages, no third rank, no death, no flow control but the ring's; what a rank writes is
 * believed. No provider that may be used can be faster, so where an MPI over this one does
 * not reach a figure, none reaches it. Not installed.
 *
 * FLOOR_FILE names a file that the two ranks make, share, and remove when both have it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include "../../../../fabric/ring/cpu_relax.h"

#define LINES	    256
#define POSTED	    1024
#define PAYLOAD	    40
#define FLOOR_BYTES (1 << 20)
#define RETURN_EACH 64 /* lines read before their room is given back */
#define LOOKS	    8  /* in one call, at most, for the next message */

struct line {
	uint32_t lap; /* written last */
	uint32_t len;
	uint64_t tag, data;
	uint8_t payload[PAYLOAD];
} __attribute__((aligned(64)));

struct ring {
	uint64_t tail; /* lines read */
	struct line lines[LINES] __attribute__((aligned(128)));
} __attribute__((aligned(128)));

struct shared {
	uint32_t ranks;
	struct ring rings[2]; /* by receiver */
};

static struct rx {
	void *buf, *context;
	size_t len;
	uint64_t tag, ignore;
} posted[POSTED];
static uint64_t rx_head, rx_tail; /* of posted */
static struct shared *shared;
static struct ring *in, *out;
static uint64_t in_head, out_head, out_tail; /* lines */
static uint64_t self;			     /* 0 or 1 */
static void *sent[POSTED];		     /* contexts of sends to be reported */
static uint64_t sent_head, sent_tail;

static struct fi_info *(*lib_dupinfo)(const struct fi_info *);

static void die(const char *what)
{
	fprintf(stderr, "floor: %s\n", what);
	abort();
}

static inline ssize_t put(const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t tag)
{
	struct line *l = &out->lines[out_head % LINES];

	if (__builtin_expect(len > PAYLOAD || to == self, 0))
		die("a message that is too long, or to oneself");
	if (__builtin_expect(out_head - out_tail >= LINES, 0)) {
		out_tail = __atomic_load_n(&out->tail, __ATOMIC_ACQUIRE);
		if (out_head - out_tail >= LINES)
			return -FI_EAGAIN;
	}
	l->len = (uint32_t) len;
	l->tag = tag;
	l->data = data;
	if (len == 8)
		memcpy(l->payload, buf, 8);
	else if (len)
		memcpy(l->payload, buf, len);
	__atomic_store_n(&l->lap, (uint32_t) (out_head / LINES + 1), __ATOMIC_RELEASE);
	out_head++;
	return 0;
}

static ssize_t t_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t tag,
		      uint64_t ignore, void *context)
{
	struct rx *r = &posted[rx_tail % POSTED];

	(void) ep;
	(void) desc;
	(void) from;
	if (rx_tail - rx_head >= POSTED)
		return -FI_EAGAIN;
	r->buf = buf;
	r->len = len;
	r->tag = tag;
	r->ignore = ignore;
	r->context = context;
	rx_tail++;
	return 0;
}

static ssize_t t_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	if (flags & (FI_PEEK | FI_CLAIM) || m->iov_count > 1)
		die("a receive that is not offered");
	return t_recv(ep, m->iov_count ? m->msg_iov->iov_base : NULL, m->iov_count ? m->msg_iov->iov_len : 0, NULL,
		      m->addr, m->tag, m->ignore, m->context);
}

static ssize_t t_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
			  uint64_t tag, void *context)
{
	ssize_t ret = put(buf, len, data, to, tag);

	(void) ep;
	(void) desc;
	if (!ret)
		sent[sent_tail++ % POSTED] = context;
	return ret;
}

static ssize_t t_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t tag,
		      void *context)
{
	return t_senddata(ep, buf, len, desc, 0, to, tag, context);
}

static ssize_t t_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t tag)
{
	(void) ep;
	return put(buf, len, data, to, tag);
}

static ssize_t t_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to, uint64_t tag)
{
	(void) ep;
	return put(buf, len, 0, to, tag);
}

/* What has come for the receives that are posted, at most count. */
static size_t take(struct fi_cq_tagged_entry *e, size_t count)
{
	struct line *l;
	struct rx *r;
	size_t n;

	for (n = 0; n < count && rx_head != rx_tail; n++, e++) {
		l = &in->lines[in_head % LINES];
		if (__atomic_load_n(&l->lap, __ATOMIC_ACQUIRE) != (uint32_t) (in_head / LINES + 1))
			break;
		r = &posted[rx_head++ % POSTED];
		if (__builtin_expect((r->tag ^ l->tag) & ~r->ignore || l->len > r->len, 0))
			die("a message that the first receive is not for");
		e->op_context = r->context;
		e->flags = FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA;
		e->len = l->len;
		e->data = l->data;
		e->tag = l->tag;
		if (l->len == 8)
			memcpy(r->buf, l->payload, 8);
		else if (l->len)
			memcpy(r->buf, l->payload, l->len);
		if (!(++in_head % RETURN_EACH))
			__atomic_store_n(&in->tail, in_head, __ATOMIC_RELEASE);
	}
	return n;
}

static ssize_t cq_read(struct fid_cq *cq, void *to, size_t count)
{
	struct fi_cq_tagged_entry *e = to;
	size_t n;
	int i;

	(void) cq;
	for (n = 0; n < count && sent_head != sent_tail; n++, e++) {
		e->op_context = sent[sent_head++ % POSTED];
		e->flags = FI_SEND | FI_TAGGED;
	}
	n += take(e, count - n);
	/* As ours does: an MPI's own loop would take the line from its writer (fabric/ring/spin.h). */
	for (i = 0; !n && rx_head != rx_tail && i < LOOKS; i++) {
		ivs_cpu_relax();
		n = take(e, count);
	}
	return n ? (ssize_t) n : -FI_EAGAIN;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *e, uint64_t flags)
{
	(void) cq;
	(void) e;
	(void) flags;
	return -FI_EAGAIN;
}

static int no_close(struct fid *fid)
{
	(void) fid;
	return 0;
}

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return 0;
}

static int no_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops fid_ops = {
	.size = sizeof(fid_ops),
	.close = no_close,
	.bind = no_bind,
	.control = no_control,
};

static ssize_t ep_cancel(fid_t fid, void *context)
{
	(void) fid;
	(void) context;
	return 0;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	(void) fid;
	(void) level;
	(void) name;
	(void) value;
	(void) len;
	return 0;
}

static int cm_getname(fid_t fid, void *addr, size_t *len)
{
	(void) fid;
	if (*len >= sizeof(self))
		memcpy(addr, &self, sizeof(self));
	*len = sizeof(self);
	return 0;
}

static int av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *to, uint64_t flags, void *context)
{
	(void) av;
	(void) flags;
	(void) context;
	for (size_t i = 0; to && i < count; i++)
		memcpy(&to[i], (const char *) addr + 8 * i, 8);
	return (int) count;
}

static int av_remove(struct fid_av *av, fi_addr_t *addr, size_t count, uint64_t flags)
{
	(void) av;
	(void) addr;
	(void) count;
	(void) flags;
	return 0;
}

static struct fi_ops_cq cq_ops = {
	.size = sizeof(cq_ops),
	.read = cq_read,
	.readerr = cq_readerr,
};
static struct fi_ops_av av_ops = {
	.size = sizeof(av_ops),
	.insert = av_insert,
	.remove = av_remove,
};
static struct fi_ops_ep ep_ops = {
	.size = sizeof(ep_ops),
	.cancel = ep_cancel,
	.setopt = ep_setopt,
};
static struct fi_ops_cm cm_ops = { .size = sizeof(cm_ops), .getname = cm_getname };
static struct fi_ops_tagged tagged_ops = {
	.size = sizeof(tagged_ops),
	.recv = t_recv,
	.recvmsg = t_recvmsg,
	.send = t_send,
	.senddata = t_senddata,
	.inject = t_inject,
	.injectdata = t_injectdata,
};

static struct fid_cq the_cq = { .fid = { .fclass = FI_CLASS_CQ, .ops = &fid_ops }, .ops = &cq_ops };
static struct fid_av the_av = { .fid = { .fclass = FI_CLASS_AV, .ops = &fid_ops }, .ops = &av_ops };
static struct fid_ep the_ep = {
	.fid = { .fclass = FI_CLASS_EP, .ops = &fid_ops },
	.ops = &ep_ops,
	.cm = &cm_ops,
	.tagged = &tagged_ops,
};

static int cq_open(struct fid_domain *d, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	(void) d;
	the_cq.fid.context = context;
	*cq = &the_cq;
	return attr->format == FI_CQ_FORMAT_TAGGED ? 0 : -FI_ENOSYS;
}

static int av_open(struct fid_domain *d, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
	(void) d;
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_MAP;
	the_av.fid.context = context;
	*av = &the_av;
	return 0;
}

static int endpoint(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context)
{
	const char *path = getenv("FLOOR_FILE");
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	(void) d;
	(void) info;
	if (fd < 0 || posix_fallocate(fd, 0, FLOOR_BYTES))
		return -FI_ENODEV;
	shared = mmap(NULL, FLOOR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return -FI_ENOMEM;
	self = __atomic_fetch_add(&shared->ranks, 1, __ATOMIC_ACQ_REL);
	if (self > 1)
		die("a third rank");
	if (self)
		unlink(path);
	in = &shared->rings[self];
	out = &shared->rings[!self];
	the_ep.fid.context = context;
	*ep = &the_ep;
	return 0;
}

static struct fi_ops_domain domain_ops = {
	.size = sizeof(domain_ops),
	.av_open = av_open,
	.cq_open = cq_open,
	.endpoint = endpoint,
};
static struct fid_domain the_domain = {
	.fid = { .fclass = FI_CLASS_DOMAIN, .ops = &fid_ops },
	.ops = &domain_ops,
};

static int domain(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d, void *context)
{
	(void) f;
	(void) info;
	the_domain.fid.context = context;
	*d = &the_domain;
	return 0;
}

static struct fi_ops_fabric fabric_ops = { .size = sizeof(fabric_ops), .domain = domain };
static struct fid_fabric the_fabric = {
	.fid = { .fclass = FI_CLASS_FABRIC, .ops = &fid_ops },
	.ops = &fabric_ops,
};

static int floor_fabric(struct fi_fabric_attr *attr, struct fid_fabric **f, void *context)
{
	(void) attr;
	the_fabric.fid.context = context;
	*f = &the_fabric;
	return 0;
}

static int floor_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			 const struct fi_info *hints, struct fi_info **out_info)
{
	uint64_t caps = FI_TAGGED | FI_MSG | FI_SEND | FI_RECV | FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
	struct fi_info *i;

	(void) node;
	(void) service;
	(void) flags;
	if (!hints || hints->caps & ~caps || !getenv("FLOOR_FILE") ||
	    (hints->ep_attr && hints->ep_attr->type > FI_EP_MSG && hints->ep_attr->type != FI_EP_RDM))
		return -FI_ENODATA;
	i = lib_dupinfo(NULL);
	if (!i)
		return -FI_ENOMEM;
	i->caps = caps;
	i->addr_format = FI_FORMAT_UNSPEC;
	i->tx_attr->caps = caps & (FI_TAGGED | FI_MSG | FI_SEND);
	i->tx_attr->msg_order = FI_ORDER_SAS;
	i->tx_attr->inject_size = PAYLOAD;
	i->tx_attr->size = LINES;
	i->tx_attr->iov_limit = 1;
	i->rx_attr->caps = caps & (FI_TAGGED | FI_MSG | FI_RECV | FI_DIRECTED_RECV);
	i->rx_attr->msg_order = FI_ORDER_SAS;
	i->rx_attr->size = POSTED;
	i->rx_attr->iov_limit = 1;
	i->ep_attr->type = FI_EP_RDM;
	i->ep_attr->max_msg_size = 1 << 30;
	i->ep_attr->mem_tag_format = UINT64_MAX;
	i->ep_attr->tx_ctx_cnt = i->ep_attr->rx_ctx_cnt = 1;
	i->domain_attr->name = strdup("floor");
	i->domain_attr->threading = FI_THREAD_DOMAIN;
	i->domain_attr->data_progress = i->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	i->domain_attr->resource_mgmt = FI_RM_ENABLED;
	i->domain_attr->av_type = FI_AV_MAP;
	i->domain_attr->mr_key_size = 8;
	i->domain_attr->cq_data_size = 8;
	i->domain_attr->cq_cnt = i->domain_attr->ep_cnt = 1;
	i->domain_attr->max_ep_tx_ctx = i->domain_attr->max_ep_rx_ctx = 1;
	i->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
	i->fabric_attr->name = strdup("floor");
	i->fabric_attr->prov_version = FI_VERSION(1, 0);
	i->fabric_attr->api_version = version;
	*out_info = i;
	return 0;
}

static void floor_cleanup(void)
{
}

static struct fi_provider floor_provider = {
	.name = "floor",
	.version = FI_VERSION(1, 0),
	.getinfo = floor_getinfo,
	.fabric = floor_fabric,
	.cleanup = floor_cleanup,
};

FI_EXT_INI
{
	void *lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
	uint32_t (*version)(void);

	if (!lib)
		return NULL;
	*(void **) &lib_dupinfo = dlsym(lib, "fi_dupinfo");
	*(void **) &version = dlsym(lib, "fi_version");
	if (!lib_dupinfo || !version)
		return NULL;
	ivs_cpu_relax_init();
	floor_provider.fi_version = version();
	return &floor_provider;
}
