/* Fabrics. */
#include "base/lib.h"
#include "base/limits.h"
#include "object/cntr.h"
#include "object/cq.h"
#include "object/domain.h"
#include "ofi/eq.h"
#include "ofi/open.h"
#include "proto/sleep.h"

static int fabric_close(struct fid *fid)
{
	struct ivs_fabric *f = ivs_entry(fid, struct ivs_fabric, fid.fid);

	if (ivs_refs(&f->refs))
		return -FI_EBUSY;
	free(f);
	return 0;
}

static int no_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
{
	(void) fabric;
	(void) info;
	(void) pep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set)
{
	(void) fabric;
	(void) attr;
	(void) set;
	return -FI_ENOSYS;
}

/* Returns 0 if the caller may sleep on the wait's descriptor, else -FI_EAGAIN. */
static int may_sleep(struct ivs_domain *d, struct ivs_wait *w, ivs_quiet_fn *quiet, void *arg)
{
	uint64_t ns;

	ivs_lock(d);
	ns = ivs_wait_arm(d, w, quiet, arg);
	if (ns)
		ivs_wait_timer(w, ns);
	ivs_unlock(d);
	return ns ? 0 : -FI_EAGAIN;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct ivs_cntr *cntr;
	struct ivs_cq *cq;
	int i, ret;

	(void) fabric;
	for (i = 0; i < count; i++) {
		switch (fids[i]->fclass) {
		case FI_CLASS_CQ:
			cq = ivs_entry(fids[i], struct ivs_cq, fid.fid);
			ret = may_sleep(cq->domain, &cq->wait, ivs_cq_quiet, cq);
			break;
		case FI_CLASS_CNTR:
			cntr = ivs_entry(fids[i], struct ivs_cntr, fid.fid);
			ret = may_sleep(cntr->domain, &cntr->wait, ivs_cntr_quiet, cntr);
			break;
		case FI_CLASS_EQ: ret = ivs_eq_trywait(fids[i]); break;
		default: return -FI_EINVAL;
		}
		if (ret)
			return ret;
	}
	return 0;
}

static struct fi_ops fabric_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = ivs_no_bind,
	.control = ivs_no_control,
	.ops_open = ivs_no_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = ivs_domain_open,
	.passive_ep = no_passive_ep,
	.eq_open = ivs_eq_open,
	.wait_open = no_wait_open,
	.trywait = trywait,
};

int ivs_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct ivs_fabric *f;

	if (attr->name && strcmp(attr->name, IVS_NAME))
		return -FI_ENODATA;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	f->fid.fid.fclass = FI_CLASS_FABRIC;
	f->fid.fid.context = context;
	f->fid.fid.ops = &fabric_fi_ops;
	f->fid.ops = &fabric_ops;
	*out = &f->fid;
	return 0;
}
