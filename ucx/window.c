/*
 * Memory of the region for the programs, which peers write and read directly: a component and a transport of its own,
 * ivshmem_m. They are separate from ivshmem, because UCX would assume that a domain that also registers memory
 * reaches all of it that way. A key that a peer has packed is hostile, and so is each address: no access leaves the
 * application's part of a rank's area.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include <nearmetal/fabric.h>

#include "atomic.h"
#include "base.h"
#include "base/list.h"
#include "memory.h"
#include "message.h"
#include "region/region.h"
#include "ring/copy.h"
#include "window.h"

#define WINDOW_FORMAT 1	   /* of the keys */
#define PACKED_MAX    8192 /* bytes that UCX packs at once: their number is only known afterwards */

/* A key, as peers pack it. */
struct packed_key {
	uint64_t region;      /* its ID */
	uint64_t addr;	      /* of the memory, at its owner */
	uint64_t offset, len; /* in the area of slot, bytes */
	uint32_t slot, epoch;
};

/* Allocated memory. */
struct window {
	void *memory;
	size_t len; /* of memory outside the region, else 0 */
	struct packed_key key;
};

struct window_iface {
	struct ivu_iface_base shown; /* first, as in UCX */
	struct ivs_region *region;
};

/* UCX's structure without additions. */
struct window_ep {
	struct window_iface *iface;
};

/*
 * From 1.19 on UCX reads only by the lanes of a rendezvous. A lane qualifies if its transport reads or writes without
 * a copy, and if its domain, where keys are needed, names the memory that it could register. The domain need not
 * state that it registers any, and UCX never asks this one to. Without these protocols (UCX_PROTO_ENABLE=n) UCX
 * would.
 */
static bool by_model(void)
{
	const char *text = getenv("UCX_PROTO_ENABLE");

	if (ivu_uct.minor < IVU_MINOR_WINDOW_AGAIN)
		return false;
	return !text || !(*text == 'n' || *text == 'N' || *text == '0' || !strcasecmp(text, "off"));
}

static ivu_status md_query(struct ivu_md *md, uint8_t *attr)
{
	ivu_memory_query(md, attr, IVU_MD_FLAG_ALLOC | IVU_MD_FLAG_NEED_RKEY, sizeof(struct packed_key));
	if (by_model())
		ivu_memory_names(attr);
	return IVU_OK;
}

/*
 * Allocates a part of this process's own area. None exists before its first worker, and later it may be full. In
 * these cases it returns ordinary memory, which peers do not reach by its key: a failure would make UCX report an
 * error, although it has other ways.
 */
static ivu_status allocate(struct ivu_md *md, size_t *length, void **address, unsigned int type, unsigned int flags,
			   void **memh)
{
	struct ivs_region *r = ivs_entry(md, struct ivu_memory, md)->region;
	struct window *w;
	uint64_t offset;

	if (flags & IVU_MEM_FIXED || type != IVU_MEMORY_HOST)
		return IVU_ERR_UNSUPPORTED;
	w = malloc(sizeof(*w));
	if (!w)
		return IVU_ERR_NO_MEMORY;
	memset(w, 0, sizeof(*w));
	w->memory = nm_fabric_alloc(*length);
	if (!w->memory) {
		w->memory = mmap(NULL, *length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (w->memory == MAP_FAILED) {
			free(w);
			return IVU_ERR_NO_MEMORY;
		}
		w->len = *length;
		w->key.slot = UINT32_MAX;
		*address = w->memory;
		*memh = w;
		return IVU_OK;
	}
	offset = (uint64_t) ((uint8_t *) w->memory - ivs_area(r, 0));
	w->key.region = r->id;
	w->key.addr = (uintptr_t) w->memory;
	w->key.slot = (uint32_t) (offset / r->geo.area_bytes);
	w->key.offset = offset % r->geo.area_bytes;
	w->key.len = *length;
	w->key.epoch = (uint32_t) (__atomic_load_n(&r->slots[w->key.slot].owner, __ATOMIC_ACQUIRE) >> 2);
	*address = w->memory;
	*memh = w;
	return IVU_OK;
}

static ivu_status mem_alloc(struct ivu_md *md, size_t *length, void **address, unsigned int type, unsigned int flags,
			    const char *name, void **memh)
{
	(void) name;
	return allocate(md, length, address, type, flags, memh);
}

static ivu_status mem_alloc_device(struct ivu_md *md, size_t *length, void **address, unsigned int type, uint8_t device,
				   unsigned int flags, const char *name, void **memh)
{
	(void) name;
	(void) device;
	return allocate(md, length, address, type, flags, memh);
}

static ivu_status mem_free(struct ivu_md *md, void *memh)
{
	struct window *w = memh;

	(void) md;
	if (w->len)
		munmap(w->memory, w->len);
	else
		nm_fabric_free(w->memory);
	free(w);
	return IVU_OK;
}

static void pack(const void *memh, void *buffer)
{
	const struct window *w = memh;

	memcpy(buffer, &w->key, sizeof(w->key));
}

static ivu_status unpack(const void *buffer, uintptr_t *rkey)
{
	const struct nm_layout_geometry *g;
	struct packed_key key;
	struct ivs_region *r;
	struct ivu_opened *o;

	memcpy(&key, buffer, sizeof(key));
	ivu_base_init();
	if (ivs_region_get(&r))
		return IVU_ERR_UNREACHABLE;
	g = &r->geo;
	/* The key belongs to a rank of another host, or not to a rank's memory. */
	if (key.region != r->id || key.slot >= g->slots || key.offset < g->heap || key.offset > g->area_bytes ||
	    key.len > g->area_bytes - key.offset || key.addr > UINT64_MAX - key.len) {
		ivs_region_put(r);
		return IVU_ERR_UNREACHABLE;
	}
	o = malloc(sizeof(*o));
	if (!o) {
		ivs_region_put(r);
		return IVU_ERR_NO_MEMORY;
	}
	o->region = r;
	o->at = ivs_area(r, key.slot) + key.offset;
	o->addr = key.addr;
	o->len = key.len;
	o->owner = &r->slots[key.slot].owner;
	o->is = NM_SLOT_OWNER(key.epoch, NM_SLOT_LIVE);
	*rkey = (uintptr_t) o;
	return IVU_OK;
}

static ivu_status rkey_release(void *comp, uintptr_t rkey, void *handle)
{
	struct ivu_opened *o = (struct ivu_opened *) rkey;

	(void) comp;
	(void) handle;
	ivs_region_put(o->region);
	free(o);
	return IVU_OK;
}

static ivu_status rkey_compare(void *comp, uintptr_t a, uintptr_t b, const void *params, int *result)
{
	const struct ivu_opened *one = (const struct ivu_opened *) a, *other = (const struct ivu_opened *) b;

	(void) comp;
	(void) params;
	*result = one->at < other->at ? -1 : one->at > other->at;
	return IVU_OK;
}

/* No process waits for the copy at the other end. */
static inline void copy(void *to, const void *from, size_t len)
{
	if (len <= IVS_COPY_SMALL)
		ivs_copy_small(to, from, len);
	else
		ivs_copy_put(to, from, len);
}

static ivu_status put_short(struct window_ep *e, const void *data, unsigned int len, uint64_t addr, uintptr_t rkey)
{
	uint8_t *to = ivu_place(rkey, addr, len);

	(void) e;
	if (!to)
		return IVU_ERR_INVALID_PARAM;
	copy(to, data, len);
	return IVU_OK;
}

static ssize_t put_bcopy(struct window_ep *e, ivu_pack pack, void *arg, uint64_t addr, uintptr_t rkey)
{
	uint8_t packed[PACKED_MAX];
	size_t len = pack(packed, arg);
	ivu_status status = put_short(e, packed, (unsigned int) len, addr, rkey);

	return status == IVU_OK ? (ssize_t) len : status;
}

static ivu_status get_bcopy(struct window_ep *e, ivu_unpack unpack, void *arg, size_t len, uint64_t addr,
			    uintptr_t rkey, struct ivu_completion *comp)
{
	const uint8_t *from = ivu_place(rkey, addr, len);

	(void) e;
	(void) comp;
	if (!from)
		return IVU_ERR_INVALID_PARAM;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	unpack(arg, from, len);
	return IVU_OK;
}

/* Returns the number of bytes in iov. SIZE_MAX: too many for any memory. */
static size_t length_of(const struct ivu_iov *iov, size_t count)
{
	size_t len = 0, n;

	for (n = 0; n < count; n++) {
		if (iov[n].length && iov[n].count > (SIZE_MAX - 1 - len) / iov[n].length)
			return SIZE_MAX;
		len += iov[n].length * iov[n].count;
	}
	return len;
}

/* Copies all data in iov to the peer's memory (there), or from it. */
static ivu_status copy_pieces(const struct ivu_iov *iov, size_t count, uint64_t addr, uintptr_t rkey, bool there)
{
	uint8_t *at = ivu_place(rkey, addr, length_of(iov, count)), *own;
	size_t n, k;

	if (!at)
		return IVU_ERR_INVALID_PARAM;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (n = 0; n < count; n++)
		for (k = 0; k < iov[n].count; k++, at += iov[n].length) {
			own = (uint8_t *) iov[n].buffer + k * iov[n].stride;
			copy(there ? at : own, there ? own : at, iov[n].length);
		}
	return IVU_OK;
}

/* The operations of UCX from 1.19 on for large transfers. Complete when they return. */
static ivu_status put_zcopy(struct ivu_ep *e, const struct ivu_iov *iov, size_t count, uint64_t addr, uintptr_t rkey,
			    struct ivu_completion *comp)
{
	(void) e;
	(void) comp;
	return copy_pieces(iov, count, addr, rkey, true);
}

static ivu_status get_zcopy(struct window_ep *e, const struct ivu_iov *iov, size_t count, uint64_t addr, uintptr_t rkey,
			    struct ivu_completion *comp)
{
	(void) e;
	(void) comp;
	return copy_pieces(iov, count, addr, rkey, false);
}

/* All operations complete at once, so UCX has nothing to wait for. */
static ivu_status pending_add(struct window_ep *e, struct ivu_pending *req, unsigned int flags)
{
	(void) e;
	(void) req;
	(void) flags;
	return IVU_ERR_BUSY;
}

static ivu_status flush(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return IVU_OK;
}

static ivu_status ep_create(const struct ivu_ep_params *params, struct window_ep **ep)
{
	*ep = calloc(1, sizeof(**ep));
	if (!*ep)
		return IVU_ERR_NO_MEMORY;
	(*ep)->iface = params->iface;
	return IVU_OK;
}

static ivu_status iface_query(struct window_iface *i, struct ivu_iface_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->put.max_short = INT_MAX;
	a->put.max_bcopy = PACKED_MAX;
	a->get.max_bcopy = a->get.max_zcopy = SIZE_MAX;
	a->put.max_zcopy = SIZE_MAX;
	a->put.max_iov = a->get.max_iov = IVU_IOV_MAX;
	a->put.align_mtu = a->put.opt_zcopy_align = a->get.align_mtu = a->get.opt_zcopy_align = 1;
	a->flags = IVU_FLAG_PUT_SHORT | IVU_FLAG_PUT_BCOPY | IVU_FLAG_GET_BCOPY | IVU_FLAG_PENDING |
		   IVU_FLAG_CONNECT_TO_IFACE | IVU_FLAG_CB_SYNC | (ivu_uct.minor >= 18 ? IVU_FLAG_INTER_NODE : 0) |
		   (by_model() ? IVU_FLAG_PUT_ZCOPY | IVU_FLAG_GET_ZCOPY : 0);
	ivu_atomic_query(a);
	a->device_addr_len = sizeof(uint64_t);
	a->iface_addr_len = sizeof(uint64_t);
	a->overhead = 10e-9;
	a->latency.c = 80e-9;
	/* Less than ivshmem states: if UCX has room for only one of both, it keeps that one. */
	a->dedicated = 11.5e9;
	/*
	 * A write by ivshmem has two copies, and waits for the owner, and can also write memory of the region. UCX
	 * omits a lane that has less than a quarter of another one's bandwidth.
	 */
	switch (i->shown.estimated) {
	case IVU_OPERATION_PUT_ZCOPY:
	case IVU_OPERATION_GET_ZCOPY:
		/*
		 * For these UCX searches its cache of registered memory, 35 ns. It counts that as nothing, but counts
		 * a copy for the other ways, which have no more copies than these. This value compensates for it: up
		 * to some 64 KiB the others are used.
		 */
		a->overhead = 9e-6;
		a->dedicated = 50e9;
		break;
	case IVU_OPERATION_PUT_SHORT:
	case IVU_OPERATION_GET_BCOPY: a->dedicated = 50e9; break;
	case IVU_OPERATION_PUT_BCOPY:
		/* It has two copies. UCX counts them as concurrent. */
		a->dedicated = 5e9;
		break;
	}
	a->max_num_eps = SIZE_MAX;
	a->dev_num_paths = 1;
	return IVU_OK;
}

static ivu_status get_device_address(struct window_iface *i, void *addr)
{
	memcpy(addr, &i->region->id, sizeof(i->region->id));
	return IVU_OK;
}

static ivu_status get_address(struct window_iface *i, void *addr)
{
	static const uint64_t format = WINDOW_FORMAT;

	(void) i;
	memcpy(addr, &format, sizeof(format));
	return IVU_OK;
}

/* Also ranks of this VM, because memory of the region is only reached this way. */
static int is_reachable(struct window_iface *i, const void *dev_addr, const void *iface_addr)
{
	uint64_t region, format = WINDOW_FORMAT;

	memcpy(&region, dev_addr, sizeof(region));
	if (iface_addr)
		memcpy(&format, iface_addr, sizeof(format));
	return region == i->region->id && format == WINDOW_FORMAT;
}

/* A transport that reaches the other's interface is connected to it. */
static int is_connected(struct window_ep *e, const struct ivu_reachable_params *p)
{
	return p->field_mask & IVU_REACHABLE_DEVICE_ADDR && p->device_addr &&
	       is_reachable(e->iface, p->device_addr, p->field_mask & IVU_REACHABLE_IFACE_ADDR ? p->iface_addr : NULL);
}

static unsigned int iface_progress(struct window_iface *i)
{
	(void) i;
	return 0;
}

static void iface_close(struct window_iface *i)
{
	ivu_uct.class_cleanup(ivu_uct.iface_class, i, -1);
	free(i);
}

static void fill_ops(struct ivu_iface_ops *ops)
{
	ivu_iface_ops_fill(ops);
	ops->put_short = IVU_FN(put_short);
	ops->put_bcopy = IVU_FN(put_bcopy);
	ops->get_bcopy = IVU_FN(get_bcopy);
	ops->put_zcopy = put_zcopy;
	ops->get_zcopy = IVU_FN(get_zcopy);
	ivu_atomic_ops(ops);
	*(void **) &ops->pending_add = IVU_FN(pending_add);
	*(void **) &ops->pending_purge = IVU_FN(ivu_nothing);
	*(void **) &ops->ep_flush = *(void **) &ops->ep_fence = IVU_FN(flush);
	*(void **) &ops->ep_create = IVU_FN(ep_create);
	*(void **) &ops->ep_destroy = IVU_FN(free);
	*(void **) &ops->iface_flush = *(void **) &ops->iface_fence = IVU_FN(flush);
	/* It uses no time of the worker's progress. */
	ops->progress_enable = ops->progress_disable = IVU_FN(ivu_nothing);
	*(void **) &ops->iface_progress = IVU_FN(iface_progress);
	*(void **) &ops->iface_close = IVU_FN(iface_close);
	*(void **) &ops->iface_query = IVU_FN(iface_query);
	*(void **) &ops->get_device_address = IVU_FN(get_device_address);
	*(void **) &ops->get_address = IVU_FN(get_address);
	*(void **) &ops->is_reachable = IVU_FN(is_reachable);
}

static ivu_status iface_open(struct ivu_md *md, void *worker, const void *params, const void *config, void **iface)
{
	struct ivu_iface_ops ops;
	ivu_status status;

	fill_ops(&ops);
	status = ivu_iface_new(sizeof(struct window_iface), &ops, md, worker, params, config, iface);
	if (status == IVU_OK)
		((struct window_iface *) *iface)->region = ivs_entry(md, struct ivu_memory, md)->region;
	return status;
}

/*
 * 1.16 to 1.18 also read by the lanes of a rendezvous, and accept none of a domain that does not register memory. A
 * domain that does would be asked to register all sent data.
 */
bool ivu_window_usable(void)
{
	return ivu_uct.minor <= IVU_MINOR_WINDOW || ivu_uct.minor >= IVU_MINOR_WINDOW_AGAIN;
}

void ivu_window_transport(struct ivu_transport *t)
{
	t->md_ops[IVU_MD_QUERY] = IVU_FN(md_query);
	t->md_ops[IVU_MD_MEM_ALLOC] = ivu_uct.abi.alloc_has_device ? IVU_FN(mem_alloc_device) : IVU_FN(mem_alloc);
	t->md_ops[IVU_MD_MEM_FREE] = IVU_FN(mem_free);
	t->component.rkey_release = IVU_FN(rkey_release);
	t->pack = pack;
	t->unpack = unpack;
	t->rkey_compare = IVU_FN(rkey_compare);
	t->tl.iface_open = IVU_FN(iface_open);
	t->is_connected = IVU_FN(is_connected);
}
