#include <stdlib.h>
#include <string.h>

#include "ops.h"

ivu_status ivu_unsupported(void)
{
	return IVU_ERR_UNSUPPORTED;
}

ivu_status ivu_nothing(void)
{
	return IVU_OK;
}

struct ivu_transport *ivu_transport_of(const struct ivu_md *md)
{
	return md->component;
}

/* Keys: the versions differ in the arguments, none of which are used here. */

static ivu_status mkey_pack(struct ivu_md *md, void *memh, const void *params, void *buffer)
{
	(void) params;
	ivu_transport_of(md)->pack(memh, buffer);
	return IVU_OK;
}

static ivu_status mkey_pack_range(struct ivu_md *md, void *memh, void *address, size_t length, const void *params,
				  void *buffer)
{
	(void) address;
	(void) length;
	return mkey_pack(md, memh, params, buffer);
}

static ivu_status rkey_unpack(void *component, const void *buffer, uintptr_t *rkey, void **handle)
{
	*handle = NULL;
	return ((struct ivu_transport *) component)->unpack(buffer, rkey);
}

static ivu_status rkey_unpack_params(void *component, const void *buffer, const void *params, uintptr_t *rkey,
				     void **handle)
{
	(void) params;
	return rkey_unpack(component, buffer, rkey, handle);
}

static ivu_status query_devices(struct ivu_md *md, struct ivu_tl_device **devices, unsigned int *count)
{
	struct ivu_tl_device *d = ivu_uct_calloc(sizeof(*d));

	if (!d)
		return IVU_ERR_NO_MEMORY;
	strncpy(d->name, ivu_transport_of(md)->device, sizeof(d->name) - 1);
	/* Open MPI uses shared memory only between ranks of one host. */
	d->type = IVU_DEVICE_NET;
	d->sys_device = IVU_SYS_DEVICE_UNKNOWN;
	*devices = d;
	*count = 1;
	return IVU_OK;
}

/*
 * Returns the duration of an operation, for UCX from 1.16 on, which chooses protocols by it. UCX's own function reads
 * the values of the interface's iface_query(), which may depend on the operation.
 */
static ivu_status estimate_perf(struct ivu_iface_base *i, struct ivu_perf *perf)
{
	ivu_status (*theirs)(struct ivu_iface_base *i, struct ivu_perf *perf);
	ivu_status status;

	*(void **) &theirs = ivu_uct.estimate_perf;
	i->estimated = perf->field_mask & IVU_PERF_OPERATION ? perf->operation : IVU_OPERATION_NONE;
	status = theirs(i, perf);
	i->estimated = IVU_OPERATION_NONE;
	return status;
}

static int is_reachable_v2(struct ivu_iface_base *i, const struct ivu_reachable_params *p)
{
	return p->field_mask & IVU_REACHABLE_DEVICE_ADDR && p->device_addr &&
	       i->base.ops.is_reachable((struct ivu_iface *) i, p->device_addr,
					p->field_mask & IVU_REACHABLE_IFACE_ADDR ? p->iface_addr : NULL);
}

static void unsupported(void **ops, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		ops[i] = IVU_FN(ivu_unsupported);
}

static void internal_ops(struct ivu_transport *t)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	const struct {
		int at;
		void *function;
	} known[] = {
		{ a->query_v2, ivu_uct.query_v2 },	 { a->estimate_perf, IVU_FN(estimate_perf) },
		{ a->vfs_refresh, IVU_FN(ivu_nothing) }, { a->is_reachable_v2, IVU_FN(is_reachable_v2) },
		{ a->is_connected, t->is_connected },
	};
	size_t i;

	unsupported(t->internal_ops, IVU_INTERNAL_OPS_MAX);
	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].at >= 0)
			t->internal_ops[known[i].at] = known[i].function;
}

void ivu_transport_fill(struct ivu_transport *t)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	struct ivu_component *c = &t->component;

	unsupported(t->md_ops, IVU_MD_OPS_MAX);
	t->md_ops[a->mkey_pack] = a->pack_has_range ? IVU_FN(mkey_pack_range) : IVU_FN(mkey_pack);
	c->cm_open = IVU_FN(ivu_unsupported);
	c->rkey_unpack = a->unpack_has_params ? IVU_FN(rkey_unpack_params) : IVU_FN(rkey_unpack);
	c->rkey_ptr = IVU_FN(ivu_unsupported);
	c->rkey_release = IVU_FN(ivu_nothing);
	t->tl.query_devices = IVU_FN(query_devices);
}

static void set_config(void *at, const char *name, const char *prefix, void *table, size_t size)
{
	struct ivu_config_entry *e = at;

	e->name = name;
	e->prefix = prefix;
	e->table = table;
	e->size = size;
}

void ivu_transport_show(struct ivu_transport *t)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	uint8_t *c = (uint8_t *) &t->component;
	struct ivu_list *tls = (struct ivu_list *) (void *) (c + a->tl_list);
	void *nothing = IVU_FN(ivu_nothing);

	internal_ops(t);
	if (a->rkey_compare)
		memcpy(c + a->rkey_compare, &t->rkey_compare, sizeof(t->rkey_compare));
	set_config(c + a->md_config, t->md_name, t->md_prefix, ivu_uct.md_config_table, 64);
	set_config(c + a->cm_config, "", "", NULL, 0);
	tls->next = tls->prev = tls;
	memcpy(c + a->md_vfs_init, &nothing, sizeof(nothing));
	ivu_uct.component_register(c);

	set_config(&t->tl.config, t->tl_name, t->tl_prefix, ivu_uct.iface_config_table, 128);
	ivu_uct.tl_register(c, &t->tl);
}

void ivu_iface_ops_fill(struct ivu_iface_ops *ops)
{
	unsupported((void **) (void *) ops, sizeof(*ops) / sizeof(void *));
}

ivu_status ivu_iface_new(size_t bytes, const struct ivu_iface_ops *ops, struct ivu_md *md, void *worker,
			 const void *params, const void *config, void **iface)
{
	struct ivu_iface_base *i;
	int count = 1;
	ivu_status status;
	void *memory;

	*iface = NULL;
	if (posix_memalign(&memory, 64, bytes))
		return IVU_ERR_NO_MEMORY;
	i = memset(memory, 0, bytes);
	i->estimated = IVU_OPERATION_NONE;
	status = ivu_uct.iface_init(i, ivu_uct.iface_class, &count, ops, ivu_transport_of(md)->internal_ops, md, worker,
				    params, config);
	if (status != IVU_OK) {
		ivu_uct.class_cleanup(ivu_uct.iface_class, i, count);
		free(i);
		return status;
	}
	*iface = i;
	return IVU_OK;
}
