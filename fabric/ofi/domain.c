/* Domains. */
#include <unistd.h>

#include "object/ep.h"
#include "object/mr.h"
#include "ofi/eq.h"
#include "ofi/memory.h"
#include "ofi/open.h"
#include "remote/core.h"

static int domain_close(struct fid *fid)
{
	struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid.fid);

	if (ivs_refs(&d->refs))
		return -FI_EBUSY;
	if (d->core && !ivs_forked(d->pid))
		ivs_core_close(d->core);
	if (d->wake >= 0)
		close(d->wake);
	if (d->region)
		ivs_region_put(d->region);
	ivs_unref(&d->fabric->refs);
	pthread_mutex_destroy(&d->lock);
	free(d->mr_hash);
	free(d);
	return 0;
}

static int domain_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	(void) fid;
	(void) flags;
	/* Registrations are synchronous: an event queue receives no events. */
	return bfid->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

static int no_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	(void) domain;
	(void) info;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_stx_ctx(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
{
	(void) domain;
	(void) attr;
	(void) stx;
	(void) context;
	return -FI_ENOSYS;
}

static int no_srx_ctx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
	(void) domain;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops domain_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = domain_bind,
	.control = ivs_no_control,
	.ops_open = ivs_memory_ops,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = ivs_av_open,
	.cq_open = ivs_cq_open,
	.endpoint = ivs_ep_open,
	.scalable_ep = no_scalable_ep,
	.cntr_open = ivs_cntr_open,
	.poll_open = ivs_poll_open,
	.stx_ctx = no_stx_ctx,
	.srx_ctx = no_srx_ctx,
	.query_atomic = ivs_query_atomic,
};

int ivs_domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context)
{
	struct ivs_fabric *f = ivs_entry(fid, struct ivs_fabric, fid);
	struct ivs_domain *d;
	int ret;

	if (info->domain_attr && info->domain_attr->name && strcmp(info->domain_attr->name, IVS_NAME))
		return -FI_EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -FI_ENOMEM;
	d->fabric = f;
	d->caps = info->caps;
	d->locking = true;
	d->wake = -1;
	d->pid = getpid();
	if (info->domain_attr) {
		d->mr_mode = info->domain_attr->mr_mode;
		d->locking = info->domain_attr->threading != FI_THREAD_DOMAIN;
	}
	ivs_list_init(&d->eps);
	pthread_mutex_init(&d->lock, NULL);
	ret = ivs_region_get(&d->region);
	if (ret) {
		d->region = NULL;
		/*
		 * A region that exists but is unusable is an error, which was logged, not a reason to go on without it.
		 */
		if (ret != -FI_ENODATA && !ivs_core_wanted()) {
			pthread_mutex_destroy(&d->lock);
			free(d);
			return ret;
		}
	}
	ret = ivs_core_open(d, &d->core);
	if (ret && !d->region) {
		pthread_mutex_destroy(&d->lock);
		free(d);
		return ret;
	}
	d->fid.fid.fclass = FI_CLASS_DOMAIN;
	d->fid.fid.context = context;
	d->fid.fid.ops = &domain_fi_ops;
	d->fid.ops = &domain_ops;
	d->fid.mr = &ivs_mr_ops;
	ivs_ref(&f->refs);
	*out = &d->fid;
	return 0;
}
