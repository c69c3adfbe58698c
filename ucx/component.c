/* The component and its memory domain: registered memory, which peers write by messages. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/param.h"
#include "abi/log.h"
#include "region/discovery.h"
#include "region/siphash.h"
#include "ring/copy.h"
#include "ucx.h"

static struct ivu_component component = { .name = IVU_NAME };
static struct ivu_tl tl = { .name = IVU_NAME };
static void *md_ops[IVU_MD_OPS_MAX];

static ivu_status unsupported(void)
{
	return IVU_ERR_UNSUPPORTED;
}

static ivu_status nothing_to_do(void)
{
	return IVU_OK;
}

/* Is there a region that somebody has made? None is made here. */
static bool region_there(void)
{
	const char *path = ivs_param.region && *ivs_param.region ? ivs_param.region : getenv("NEARMETAL_REGION");
	char found[320];

	if (path && *path)
		return strcmp(path, "none") && !access(path, R_OK | W_OK);
	return !access(NM_REGION_DEVICE, R_OK | W_OK) || ivs_region_find(found, sizeof(found));
}

static ivu_status query_md_resources(void *comp, void **resources, unsigned int *count)
{
	struct ivs_region *region;

	ivu_base_init();
	*resources = NULL;
	*count = 0;
	if (!region_there() || ivs_region_get(&region))
		return IVU_OK;
	ivs_region_put(region);
	return ivu_uct.query_single_md(comp, resources, count);
}

ivu_status ivu_memory_open(void *comp, void **ops, struct ivu_md **md)
{
	struct ivu_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return IVU_ERR_NO_MEMORY;
	/* A program that knows the transport's name asks for no resources before. */
	ivu_base_init();
	if (getrandom(m->secret, sizeof(m->secret), 0) != sizeof(m->secret) || ivs_region_get(&m->region)) {
		free(m);
		return IVU_ERR_NO_DEVICE;
	}
	pthread_mutex_init(&m->lock, NULL);
	m->md.ops = ops;
	m->md.component = comp;
	*md = &m->md;
	return IVU_OK;
}

static ivu_status md_open(void *comp, const char *name, const void *config, struct ivu_md **md)
{
	(void) name;
	(void) config;
	return ivu_memory_open(comp, md_ops, md);
}

static void md_close(struct ivu_md *md)
{
	struct ivu_memory *m = ivs_entry(md, struct ivu_memory, md);
	size_t i;

	for (i = 0; i < IVU_MEM_BUCKETS; i++)
		while (m->mem[i]) {
			struct ivu_mem *mem = m->mem[i];

			m->mem[i] = mem->next;
			free(mem);
		}
	ivs_region_put(m->region);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static void put64(uint8_t *attr, size_t at, uint64_t value)
{
	memcpy(attr + at, &value, sizeof(value));
}

void ivu_memory_query(uint8_t *attr, const char *name, uint64_t flags, size_t key_bytes)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	size_t begin = ivu_uct.minor == 13 ? 0 : sizeof(uint64_t);	/* the mask of what is asked for */

	memset(attr + begin, 0, a->attr_bytes - begin);
	put64(attr, a->attr_flags, flags);
	if (flags & IVU_MD_FLAG_REG) {
		put64(attr, a->attr_max_reg, SIZE_MAX);
		put64(attr, a->attr_reg_mem_types, 1U << IVU_MEMORY_HOST);
		/* UCX's buffers of messages may be registered where this is said only: a build with assertions ends otherwise. */
		if (a->attr_cache_mem_types)
			put64(attr, a->attr_cache_mem_types, 1U << IVU_MEMORY_HOST);
	}
	if (flags & IVU_MD_FLAG_ALLOC) {
		put64(attr, a->attr_max_alloc, SIZE_MAX);
		put64(attr, a->attr_alloc_mem_types, 1U << IVU_MEMORY_HOST);
	}
	put64(attr, a->attr_access_mem_types, 1U << IVU_MEMORY_HOST);
	put64(attr, a->attr_rkey_size, key_bytes);
	memset(attr + a->attr_cpus, 0xff, 128);
	strncpy((char *) attr + a->attr_component, name, IVU_COMPONENT_NAME);
	if (a->attr_alignment)
		put64(attr, a->attr_alignment, 1);
}

void ivu_memory_names(uint8_t *attr)
{
	put64(attr, ivu_uct.abi.attr_reg_mem_types, 1U << IVU_MEMORY_HOST);
}

static ivu_status md_query(struct ivu_md *md, uint8_t *attr)
{
	(void) md;
	ivu_memory_query(attr, IVU_NAME, IVU_MD_FLAG_REG | IVU_MD_FLAG_NEED_RKEY, sizeof(uint64_t));
	return IVU_OK;
}

static ivu_status mem_reg(struct ivu_md *md, void *address, size_t length, const void *params, void **memh)
{
	struct ivu_memory *m = ivs_entry(md, struct ivu_memory, md);
	struct ivu_mem *mem = malloc(sizeof(*mem));
	uint64_t serial;

	(void) params;
	if (!mem)
		return IVU_ERR_NO_MEMORY;
	mem->base = address;
	mem->len = length;
	pthread_mutex_lock(&m->lock);
	serial = ++m->last_key;
	mem->key = ivs_siphash(m->secret, &serial, sizeof(serial));
	mem->next = m->mem[mem->key % IVU_MEM_BUCKETS];
	m->mem[mem->key % IVU_MEM_BUCKETS] = mem;
	pthread_mutex_unlock(&m->lock);
	*memh = mem;
	return IVU_OK;
}

static ivu_status mem_dereg(struct ivu_md *md, const struct ivu_mem_dereg *params)
{
	struct ivu_memory *m = ivs_entry(md, struct ivu_memory, md);
	struct ivu_mem *mem = params->memh, **at;

	if (!(params->field_mask & IVU_MEM_DEREG_MEMH) || !mem)
		return IVU_ERR_INVALID_PARAM;
	if (params->field_mask & IVU_MEM_DEREG_FLAGS && params->flags & IVU_MEM_DEREG_INVALIDATE)
		return IVU_ERR_UNSUPPORTED;
	pthread_mutex_lock(&m->lock);
	for (at = &m->mem[mem->key % IVU_MEM_BUCKETS]; *at; at = &(*at)->next)
		if (*at == mem) {
			*at = mem->next;
			break;
		}
	pthread_mutex_unlock(&m->lock);
	free(mem);
	return IVU_OK;
}

bool ivu_memory_put(struct ivu_memory *m, uint64_t key, uint64_t addr, const void *data, size_t len)
{
	struct ivu_mem *mem;
	bool fits;

	/* Held while it is written: it may be withdrawn meanwhile, and belong to somebody else then. */
	pthread_mutex_lock(&m->lock);
	for (mem = m->mem[key % IVU_MEM_BUCKETS]; mem && mem->key != key; mem = mem->next)
		;
	fits = mem && addr >= (uintptr_t) mem->base && addr - (uintptr_t) mem->base <= mem->len &&
	       len <= mem->len - (addr - (uintptr_t) mem->base);
	if (fits)
		ivs_copy((void *) (uintptr_t) addr, data, len);
	pthread_mutex_unlock(&m->lock);
	return fits;
}

static ivu_status mkey_pack(struct ivu_md *md, void *memh, const void *params, void *buffer)
{
	const struct ivu_mem *mem = memh;

	(void) md;
	(void) params;
	memcpy(buffer, &mem->key, sizeof(mem->key));
	return IVU_OK;
}

static ivu_status mkey_pack_range(struct ivu_md *md, void *memh, void *address, size_t length, const void *params,
				  void *buffer)
{
	(void) address;
	(void) length;
	return mkey_pack(md, memh, params, buffer);
}

static ivu_status rkey_unpack(void *comp, const void *buffer, uintptr_t *rkey, void **handle)
{
	uint64_t key;

	(void) comp;
	memcpy(&key, buffer, sizeof(key));
	*rkey = key;
	*handle = NULL;
	return IVU_OK;
}

static ivu_status rkey_unpack_params(void *comp, const void *buffer, const void *params, uintptr_t *rkey,
				     void **handle)
{
	(void) params;
	return rkey_unpack(comp, buffer, rkey, handle);
}

static ivu_status rkey_compare(void *comp, uintptr_t a, uintptr_t b, const void *params, int *result)
{
	(void) comp;
	(void) params;
	*result = a < b ? -1 : a > b;
	return IVU_OK;
}

ivu_status ivu_device(const char *name, struct ivu_tl_device **devices, unsigned int *count)
{
	struct ivu_tl_device *d = ivu_uct_calloc(sizeof(*d));

	if (!d)
		return IVU_ERR_NO_MEMORY;
	strncpy(d->name, name, sizeof(d->name) - 1);
	/* Open MPI leaves shared memory to ranks of one host. */
	d->type = IVU_DEVICE_NET;
	d->sys_device = IVU_SYS_DEVICE_UNKNOWN;
	*devices = d;
	*count = 1;
	return IVU_OK;
}

static ivu_status query_devices(struct ivu_md *md, struct ivu_tl_device **devices, unsigned int *count)
{
	(void) md;
	return ivu_device(IVU_DEVICE, devices, count);
}

static ivu_status iface_open(struct ivu_md *md, void *worker, const void *params, const void *config, void **iface)
{
	struct ivu_iface *i;
	ivu_status status = ivu_iface_open(ivs_entry(md, struct ivu_memory, md), worker, params, config, &i);

	*iface = status == IVU_OK ? i : NULL;
	return status;
}

static void set_config(void *at, const char *name, const char *prefix, void *table, size_t size)
{
	struct ivu_config_entry *e = at;

	e->name = name;
	e->prefix = prefix;
	e->table = table;
	e->size = size;
}

#define FN(function) ((void *) (uintptr_t) (function))

void ivu_md_ops(void **ops)
{
	size_t i;

	for (i = 0; i < IVU_MD_OPS_MAX; i++)
		ops[i] = FN(unsupported);
	ops[0] = FN(md_close);
}

void ivu_component_add(struct ivu_component *of, struct ivu_tl *transport, void *compare,
		       const struct ivu_config_names *names)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	uint8_t *c = (uint8_t *) of;
	struct ivu_list *tls = (struct ivu_list *) (void *) (c + a->tl_list);
	void *f = FN(nothing_to_do);

	of->query_md_resources = FN(query_md_resources);
	of->cm_open = FN(unsupported);
	if (a->rkey_compare)
		memcpy(c + a->rkey_compare, &compare, sizeof(compare));
	set_config(c + a->md_config, names->md, names->md_prefix, ivu_uct.md_config_table, 64);
	set_config(c + a->cm_config, "", "", NULL, 0);
	tls->next = tls->prev = tls;
	memcpy(c + a->md_vfs_init, &f, sizeof(f));
	ivu_uct.component_register(of);

	set_config(&transport->config, names->tl, names->tl_prefix, ivu_uct.iface_config_table, 128);
	ivu_uct.tl_register(of, transport);
}

void ivu_component_register(void)
{
	const struct ivu_abi *a = &ivu_uct.abi;

	ivu_md_ops(md_ops);
	md_ops[1] = FN(md_query);
	md_ops[5] = FN(mem_reg);
	md_ops[6] = FN(mem_dereg);
	md_ops[a->mkey_pack] = a->pack_has_range ? FN(mkey_pack_range) : FN(mkey_pack);

	component.md_open = FN(md_open);
	component.rkey_unpack = a->unpack_has_params ? FN(rkey_unpack_params) : FN(rkey_unpack);
	component.rkey_ptr = FN(unsupported);
	component.rkey_release = FN(nothing_to_do);
	tl.query_devices = FN(query_devices);
	tl.iface_open = FN(iface_open);
	ivu_component_add(&component, &tl, FN(rkey_compare),
			  &(struct ivu_config_names) { IVU_NAME " memory domain", "IVSHMEM_MD_",
						       IVU_NAME " transport", "IVSHMEM_" });
	ivu_window_register();
}
