/* Registers memory that peers may reach. */
#include "object/ep.h"
#include "object/mr.h"
#include "ofi/open.h"
#include "region/ledger.h"

/* Begins a change of an entry that others read at any time; end() ends it. Returns the state for end(). */
static uint64_t begin(struct nm_mr *m)
{
	uint64_t state = __atomic_load_n(&m->state, __ATOMIC_RELAXED) | 1;

	__atomic_store_n(&m->state, state, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return state;
}

static void end(struct nm_mr *m, uint64_t state)
{
	__atomic_store_n(&m->state, state + 1, __ATOMIC_RELEASE);
}

#define MR_WORDS (sizeof(struct nm_mr) / sizeof(uint64_t))

/* Writes the entry of mr into the table of the endpoint's slot. */
static void write_line(struct ivs_ep *ep, const struct ivs_mr *mr)
{
	struct ivs_region *r = ep->domain->region;
	struct nm_mr *table = ivs_mrs(r, ep->home.slot), *m = &table[mr->shown], line;
	struct ivs_ledger *ledger = ivs_slot_ledger(ep->home.slot);
	uint64_t *words = (uint64_t *) (void *) &line;
	uintptr_t base = (uintptr_t) mr->iov[0].iov_base, start = (uintptr_t) r->base;
	bool in_region = base >= start && base - start < r->header.size_bytes &&
			 mr->len <= r->header.size_bytes - (base - start);
	uint64_t state;
	size_t i;

	memset(&line, 0, sizeof(line));
	line.key = mr->fid.key;
	line.len = mr->len;
	line.origin = mr->origin;
	line.base = in_region ? base - start : base;
	line.access = (mr->access & FI_REMOTE_READ ? NM_MR_READ : 0) |
		      (mr->access & FI_REMOTE_WRITE ? NM_MR_WRITE : 0) | (in_region ? NM_MR_REGION : 0);
	line.valid = 1;
	line.check = ivs_mr_check(ivs_slot_key(), &line, ep->home.slot, ep->home.epoch);
	if (ledger)
		__atomic_store_n(&ledger->check[mr->shown], line.check, __ATOMIC_RELEASE);
	state = begin(m);
	for (i = 1; i < MR_WORDS; i++)
		__atomic_store_n((uint64_t *) (void *) m + i, words[i], __ATOMIC_RELAXED);
	end(m, state);
	/* The index after the last one ever used: readers stop there. */
	if ((uint64_t) mr->shown >= table[NM_LAYOUT_MR_COUNT].key)
		__atomic_store_n(&table[NM_LAYOUT_MR_COUNT].key, (uint64_t) mr->shown + 1, __ATOMIC_RELEASE);
}

/* Shows mr to others: in the table of each of the domain's slots. */
static void show(struct ivs_mr *mr)
{
	struct ivs_domain *d = mr->domain;
	struct ivs_list *pos;
	int i;

	mr->shown = -1;
	/* If this rank counts the peers' operations, they have to send them as messages. */
	if (!d->region || mr->count != 1 || mr->flags & FI_RMA_EVENT || d->caps & FI_RMA_EVENT ||
	    !(mr->access & (FI_REMOTE_READ | FI_REMOTE_WRITE)))
		return;
	for (i = 0; i < NM_LAYOUT_MR_COUNT && d->mr_shown[i]; i++)
		;
	if (i == NM_LAYOUT_MR_COUNT)
		return; /* it can be reached only by messages */
	mr->shown = i;
	d->mr_shown[i] = mr;
	ivs_list_each(pos, &d->eps) {
		struct ivs_ep *ep = ivs_entry(pos, struct ivs_ep, domain_link);

		if (ep->enabled)
			write_line(ep, mr);
	}
}

static void hide(struct ivs_mr *mr)
{
	struct ivs_list *pos;

	if (mr->shown < 0)
		return;
	mr->domain->mr_shown[mr->shown] = NULL;
	ivs_list_each(pos, &mr->domain->eps) {
		struct ivs_ep *ep = ivs_entry(pos, struct ivs_ep, domain_link);
		struct nm_mr *m;
		uint64_t state;

		if (!ep->enabled)
			continue;
		/* If another VM puts the entry back into the region, no ledger confirms it. */
		if (ivs_slot_ledger(ep->home.slot))
			__atomic_store_n(&ivs_slot_ledger(ep->home.slot)->check[mr->shown], 0, __ATOMIC_RELEASE);
		m = &ivs_mrs(mr->domain->region, ep->home.slot)[mr->shown];
		state = begin(m);
		__atomic_store_n(&m->valid, 0, __ATOMIC_RELAXED);
		end(m, state);
	}
	mr->shown = -1;
}

void ivs_mr_show_all(struct ivs_ep *ep)
{
	int i;

	for (i = 0; i < NM_LAYOUT_MR_COUNT; i++)
		if (ep->domain->mr_shown[i])
			write_line(ep, ep->domain->mr_shown[i]);
}

static int mr_close(struct fid *fid)
{
	struct ivs_mr *mr = ivs_entry(fid, struct ivs_mr, fid.fid), **at;
	struct ivs_domain *d = mr->domain;

	ivs_lock(d);
	hide(mr);
	for (at = &d->mr_hash[ivs_mr_bucket(mr->fid.key)]; *at; at = &(*at)->next)
		if (*at == mr) {
			*at = mr->next;
			break;
		}
	if (d->mr_closed)
		d->mr_closed(d, mr);
	d->mr_count--;
	ivs_unref(&d->refs);
	for (int dir = 0; dir < 2; dir++)
		if (mr->cntr[dir])
			ivs_unref(&mr->cntr[dir]->refs);
	ivs_unlock(d);
	free(mr);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct ivs_mr *mr = ivs_entry(fid, struct ivs_mr, fid.fid);
	struct ivs_cntr *cntr;
	int dir;

	/* Every endpoint of the domain can reach the memory anyway. */
	if (bfid->fclass == FI_CLASS_EP)
		return 0;
	if (bfid->fclass != FI_CLASS_CNTR || !(flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)))
		return -FI_EINVAL;
	cntr = ivs_entry(bfid, struct ivs_cntr, fid.fid);
	for (dir = 0; dir < 2; dir++)
		if (flags & (dir ? FI_REMOTE_WRITE : FI_REMOTE_READ) && !mr->cntr[dir]) {
			mr->cntr[dir] = cntr;
			ivs_ref(&cntr->refs);
		}
	/* Counting needs a message for each operation: peers must not access the memory directly. */
	ivs_lock(mr->domain);
	hide(mr);
	ivs_unlock(mr->domain);
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static struct fi_ops mr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = ivs_no_ops_open,
};

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
	struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid.fid);
	struct ivs_mr *mr;
	size_t i;

	if (fid->fclass != FI_CLASS_DOMAIN || !attr || attr->iov_count > IVS_IOV_MAX)
		return -FI_EINVAL;
	if (flags & ~(uint64_t) FI_RMA_EVENT)
		return -FI_EBADFLAGS;
	if (attr->iface != FI_HMEM_SYSTEM)
		return -FI_ENOSYS;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->domain = d;
	mr->count = attr->iov_count;
	mr->access = attr->access;
	mr->flags = flags;
	mr->shown = -1;
	for (i = 0; i < attr->iov_count; i++) {
		mr->iov[i] = attr->mr_iov[i];
		mr->len += attr->mr_iov[i].iov_len;
	}
	ivs_lock(d);
	if (!d->mr_hash)
		d->mr_hash = calloc(IVS_MR_BUCKETS, sizeof(*d->mr_hash));
	if (!d->mr_hash) {
		ivs_unlock(d);
		free(mr);
		return -FI_ENOMEM;
	}
	if (d->mr_mode & (IVS_MR_BASIC | FI_MR_PROV_KEY)) {
		do
			mr->fid.key = ++d->mr_next;
		while (ivs_mr_find_key(d, mr->fid.key));
	} else {
		mr->fid.key = attr->requested_key;
		if (ivs_mr_find_key(d, mr->fid.key)) {
			ivs_unlock(d);
			free(mr);
			return -FI_ENOKEY;
		}
	}
	if (d->mr_mode & (IVS_MR_BASIC | FI_MR_VIRT_ADDR) && mr->count)
		mr->origin = (uintptr_t) mr->iov[0].iov_base;
	mr->origin += attr->offset;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fi_ops;
	mr->next = d->mr_hash[ivs_mr_bucket(mr->fid.key)];
	d->mr_hash[ivs_mr_bucket(mr->fid.key)] = mr;
	d->mr_count++;
	ivs_ref(&d->refs);
	show(mr);
	ivs_unlock(d);
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
		   uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct fi_mr_attr attr = {
		.mr_iov = iov,
		.iov_count = count,
		.access = access,
		.offset = offset,
		.requested_key = requested_key,
		.context = context,
	};

	return mr_regattr(fid, &attr, flags, mr);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
		  uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context)
{
	struct iovec iov = { (void *) (uintptr_t) buf, len };

	return mr_regv(fid, &iov, 1, access, offset, requested_key, flags, mr, context);
}

struct fi_ops_mr ivs_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
