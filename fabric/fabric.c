/* Fabrics. */
#include "ivshmem.h"

static int fabric_close(struct fid *fid)
{
	struct ivs_fabric *f = ivs_entry(fid, struct ivs_fabric, fid.fid);

	if (__atomic_load_n(&f->refs, __ATOMIC_ACQUIRE))
		return -FI_EBUSY;
	free(f);
	return 0;
}

static int no_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
			 void *context)
{
	(void) fabric;
	(void) info;
	(void) pep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
			struct fid_wait **set)
{
	(void) fabric;
	(void) attr;
	(void) set;
	return -FI_ENOSYS;
}

static int trywait_cq(struct ivs_cq *cq)
{
	int ret = 0;

	ivs_lock(cq->domain);
	ivs_wait_arm(&cq->wait);
	if (cq->head == cq->tail)
		ivs_domain_progress(cq->domain);
	if (cq->head != cq->tail)
		ret = -FI_EAGAIN;
	ivs_unlock(cq->domain);
	return ret;
}

static int trywait_cntr(struct ivs_cntr *cntr)
{
	uint64_t before = cntr->value + cntr->errors;
	int ret;

	ivs_lock(cntr->domain);
	ivs_wait_arm(&cntr->wait);
	ivs_domain_progress(cntr->domain);
	ret = cntr->value + cntr->errors != before ? -FI_EAGAIN : 0;
	ivs_unlock(cntr->domain);
	return ret;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int i, ret;

	(void) fabric;
	for (i = 0; i < count; i++) {
		switch (fids[i]->fclass) {
		case FI_CLASS_CQ:
			ret = trywait_cq(ivs_entry(fids[i], struct ivs_cq, fid.fid));
			break;
		case FI_CLASS_CNTR:
			ret = trywait_cntr(ivs_entry(fids[i], struct ivs_cntr, fid.fid));
			break;
		case FI_CLASS_EQ:
			ret = ivs_eq_trywait(fids[i]);
			break;
		default:
			return -FI_EINVAL;
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
