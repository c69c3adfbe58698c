/* Completion queues. */
#include "ofi/open.h"
#include "proto/eager_receive.h"
#include "proto/proto.h"
#include "proto/sleep.h"
#include "remote/core.h"
#include "remote/passthrough.h"
#include "tune.h"

static const size_t entry_bytes[] = {
	[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
	[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
	[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
	[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
};

static inline ssize_t read_locked(struct ivs_cq *cq, char *buf, size_t count, fi_addr_t *src)
{
	ssize_t ret;

	if (cq->head == cq->tail) {
		ret = ivs_eager_receive(cq, buf, count, src);
		if (ret)
			return ret;
		ivs_domain_progress(cq->domain);
	}
	return ivs_cq_drain(cq, buf, count, src);
}

/*
 * Ends a read with this result: counts it, unlocks the domain, and yields the CPU after many empty reads. Returns ret.
 */
static inline __attribute__((always_inline)) ssize_t leave(struct ivs_cq *cq, ssize_t ret)
{
	uint32_t idle = ivs_cq_idle(cq, ret);

	ivs_unlock(cq->domain);
	if (unlikely(idle >= ivs_cq_patience(cq)))
		ivs_cq_yield(cq, idle);
	return ret;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid);
	ssize_t ret;

	ivs_lock(cq->domain);
	if (unlikely(!count)) {
		ivs_domain_progress(cq->domain);
		ret = cq->head == cq->tail ? -FI_EAGAIN : 0;
	} else {
		ret = read_locked(cq, buf, count, src);
	}
	return leave(cq, ret);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

/*
 * Makes progress on the domain; completions are passed directly to the reader if possible. Returns the number it got.
 */
static inline size_t take(struct ivs_cq *cq, void *buf, size_t count, fi_addr_t *src)
{
	struct ivs_list *eps = &cq->domain->eps;
	struct ivs_ep *ep;
	size_t n;

	if (likely(eps->next != eps && eps->next == eps->prev)) {
		ep = ivs_entry(eps->next, struct ivs_ep, domain_link);
		if (likely(ep->enabled && ivs_list_empty(&ep->active))) {
			n = ivs_passthrough_read(ep, cq, buf, count, src);
			if (likely(n || ivs_list_empty(&ep->active)))
				return n;
		}
	}
	ivs_domain_progress(cq->domain);
	return 0;
}

/* Like cq_readfrom(), for a domain that has only the core provider. */
static ssize_t passthrough_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid);
	ssize_t ret;

	ivs_lock(cq->domain);
	ret = cq->head == cq->tail || !count ? (ssize_t) take(cq, buf, count, src) : 0;
	if (!ret && (count || cq->head == cq->tail))
		ret = ivs_cq_drain(cq, buf, count, src);
	return leave(cq, ret);
}

static ssize_t passthrough_read(struct fid_cq *fid, void *buf, size_t count)
{
	return passthrough_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid);
	struct ivs_comp *c;
	ssize_t ret = -FI_EAGAIN;

	(void) flags;
	ivs_lock(cq->domain);
	c = &cq->ring[cq->head & cq->mask];
	if (cq->head != cq->tail && c->err) {
		buf->op_context = c->context;
		buf->flags = c->flags;
		buf->len = c->len;
		buf->buf = c->buf;
		buf->data = c->data;
		buf->tag = c->tag;
		buf->olen = c->err->olen;
		buf->err = c->err->err;
		buf->prov_errno = c->err->prov_errno;
		/* The fields after it depend on the caller's version: without error data they are not used. */
		buf->err_data_size = 0;
		free(c->err);
		cq->head++;
		ret = 1;
	}
	ivs_unlock(cq->domain);
	return ret;
}

bool ivs_cq_quiet(void *arg, uint64_t *mark)
{
	const struct ivs_cq *cq = arg;

	*mark = cq->tail;
	return cq->head == cq->tail;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *src, const void *cond, int timeout)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid);
	uint64_t deadline = ivs_deadline(timeout);
	unsigned int round = 0;
	bool over;
	ssize_t ret;

	(void) cond;
	if (cq->wait_obj == FI_WAIT_NONE)
		return -FI_EINVAL;
	for (;;) {
		ret = cq_readfrom(fid, buf, count, src);
		if (ret != -FI_EAGAIN)
			return ret;
		if (__atomic_exchange_n(&cq->signaled, false, __ATOMIC_ACQ_REL))
			return -FI_EAGAIN;
		if (!timeout)
			return -FI_EAGAIN;
		if (ivs_wait_spin(deadline, &round, &over)) {
			if (over)
				return -FI_EAGAIN;
			continue;
		}
		if (!ivs_wait_sleep(cq->domain, &cq->wait, ivs_cq_quiet, cq, deadline))
			return -FI_EAGAIN;
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid);

	__atomic_store_n(&cq->signaled, true, __ATOMIC_RELEASE);
	ivs_wait_signal(&cq->wait);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf, size_t len)
{
	(void) fid;
	(void) err_data;
	return ivs_error_text(prov_errno, buf, len);
}

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

/* Operations of a domain that has only the core provider. */
static struct fi_ops_cq passthrough_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = passthrough_read,
	.readfrom = passthrough_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

static int cq_close(struct fid *fid)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid.fid);

	if (ivs_refs(&cq->refs))
		return -FI_EBUSY;
	for (; cq->head != cq->tail; cq->head++)
		free(cq->ring[cq->head & cq->mask].err);
	ivs_wait_close(&cq->wait);
	free(cq->ring);
	ivs_unref(&cq->domain->refs);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct ivs_cq *cq = ivs_entry(fid, struct ivs_cq, fid.fid);

	return ivs_wait_control(&cq->wait, cq->wait_obj, command, arg);
}

static struct fi_ops cq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = ivs_no_bind,
	.control = cq_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	struct ivs_domain *domain = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_cq *cq;
	size_t ring = 64;
	int ret;

	if (attr->format > FI_CQ_FORMAT_TAGGED || attr->wait_cond != FI_CQ_COND_NONE)
		return -FI_ENOSYS;
	switch (attr->wait_obj) {
	case FI_WAIT_NONE:
	case FI_WAIT_UNSPEC:
	case FI_WAIT_FD:
	case FI_WAIT_YIELD: break;
	default: return -FI_ENOSYS;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->domain = domain;
	cq->format = attr->format ? attr->format : FI_CQ_FORMAT_CONTEXT;
	cq->entry_bytes = entry_bytes[cq->format];
	cq->wait_obj = attr->wait_obj;
	cq->size = attr->size ? attr->size : IVS_CQ_SIZE;
	while (ring < cq->size && ring < IVS_CQ_SIZE)
		ring *= 2;
	cq->ring = malloc(ring * sizeof(*cq->ring));
	cq->mask = ring - 1;
	cq->patience = ivs_param.overcommit ? IVS_YIELD_CROWDED : IVS_YIELD_AFTER;
	cq->wait.epoll = -1;
	if (!cq->ring) {
		free(cq);
		return -FI_ENOMEM;
	}
	if (cq->wait_obj == FI_WAIT_UNSPEC || cq->wait_obj == FI_WAIT_FD) {
		ret = ivs_wait_open(domain, &cq->wait);
		if (ret) {
			free(cq->ring);
			free(cq);
			return ret;
		}
	}
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fi_ops;
	cq->fid.ops = !domain->region && ivs_core_passthrough(domain) ? &passthrough_ops : &cq_ops;
	ivs_ref(&domain->refs);
	*out = &cq->fid;
	return 0;
}
