#include <nearmetal/fabric.h>

#include "object/ep.h"
#include "ofi/memory.h"
#include "region/heap.h"

static int inside(struct fid_domain *fid, const void *memory, size_t len)
{
	const struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid);
	uintptr_t at = (uintptr_t) memory, start;

	if (!d->region)
		return 0;
	start = (uintptr_t) d->region->base;
	return at >= start && at - start <= d->region->header.size_bytes &&
	       len <= d->region->header.size_bytes - (at - start);
}

static struct ivs_ep *first_ep(struct ivs_domain *d)
{
	struct ivs_ep *ep;

	if (ivs_list_empty(&d->eps))
		return NULL;
	ep = ivs_entry(d->eps.next, struct ivs_ep, domain_link);
	return ep->home.heap ? ep : NULL;
}

/* Allocates from the top of the rank's area down; rings grow from below. */
static void *alloc(struct fid_domain *fid, size_t len)
{
	struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_ep *ep;
	void *p = NULL;

	ivs_lock(d);
	ep = first_ep(d);
	if (ep)
		p = ivs_heap_alloc(ep->home.heap, len);
	ivs_unlock(d);
	return p;
}

static void give_back(struct fid_domain *fid, void *memory)
{
	struct ivs_domain *d = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_ep *ep;

	ivs_lock(d);
	ep = first_ep(d);
	if (ep)
		ivs_heap_free(ep->home.heap, memory);
	ivs_unlock(d);
}

static struct nm_fabric_memory memory_ops = {
	.size = sizeof(struct nm_fabric_memory),
	.alloc = alloc,
	.free = give_back,
	.inside = inside,
};

int ivs_memory_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void) fid;
	(void) context;
	if (strcmp(name, NM_FABRIC_MEMORY) || flags)
		return -FI_ENOSYS;
	*ops = &memory_ops;
	return 0;
}
