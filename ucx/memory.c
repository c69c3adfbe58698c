#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base.h"
#include "base/list.h"
#include "base/param.h"
#include "memory.h"
#include "region/discovery.h"
#include "region/siphash.h"
#include "ring/copy.h"

/* Returns whether a region exists. None is made here. */
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

static ivu_status md_open(void *comp, const char *name, const void *config, struct ivu_md **md)
{
	struct ivu_memory *m = calloc(1, sizeof(*m));

	(void) name;
	(void) config;
	if (!m)
		return IVU_ERR_NO_MEMORY;
	/* A program that knows the transport's name queries no resources before. */
	ivu_base_init();
	if (getrandom(m->secret, sizeof(m->secret), 0) != sizeof(m->secret) || ivs_region_get(&m->region)) {
		free(m);
		return IVU_ERR_NO_DEVICE;
	}
	pthread_mutex_init(&m->lock, NULL);
	m->md.ops = ((struct ivu_transport *) comp)->md_ops;
	m->md.component = comp;
	*md = &m->md;
	return IVU_OK;
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

void ivu_memory_query(struct ivu_md *md, uint8_t *attr, uint64_t flags, size_t key_bytes)
{
	const struct ivu_abi *a = &ivu_uct.abi;
	size_t begin = ivu_uct.minor == 13 ? 0 : sizeof(uint64_t); /* the mask of requested fields */

	memset(attr + begin, 0, a->attr_bytes - begin);
	put64(attr, a->attr_flags, flags);
	if (flags & IVU_MD_FLAG_REG) {
		put64(attr, a->attr_max_reg, SIZE_MAX);
		put64(attr, a->attr_reg_mem_types, 1U << IVU_MEMORY_HOST);
		/*
		 * UCX's message buffers may only be registered if this is set: a build with assertions aborts
		 * otherwise.
		 */
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
	memcpy(attr + a->attr_component, ivu_transport_of(md)->component.name, IVU_COMPONENT_NAME);
	if (a->attr_alignment)
		put64(attr, a->attr_alignment, 1);
}

void ivu_memory_names(uint8_t *attr)
{
	put64(attr, ivu_uct.abi.attr_reg_mem_types, 1U << IVU_MEMORY_HOST);
}

static ivu_status md_query(struct ivu_md *md, uint8_t *attr)
{
	ivu_memory_query(md, attr, IVU_MD_FLAG_REG | IVU_MD_FLAG_NEED_RKEY, sizeof(uint64_t));
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

	/*
	 * Locked while it is written, because it may be deregistered in the meantime, and then belong to another
	 * user.
	 */
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

static void pack(const void *memh, void *buffer)
{
	const struct ivu_mem *mem = memh;

	memcpy(buffer, &mem->key, sizeof(mem->key));
}

static ivu_status unpack(const void *buffer, uintptr_t *rkey)
{
	uint64_t key;

	memcpy(&key, buffer, sizeof(key));
	*rkey = key;
	return IVU_OK;
}

static ivu_status rkey_compare(void *comp, uintptr_t a, uintptr_t b, const void *params, int *result)
{
	(void) comp;
	(void) params;
	*result = a < b ? -1 : a > b;
	return IVU_OK;
}

void ivu_memory_domain(struct ivu_transport *t)
{
	t->component.query_md_resources = IVU_FN(query_md_resources);
	t->component.md_open = IVU_FN(md_open);
	t->md_ops[IVU_MD_CLOSE] = IVU_FN(md_close);
}

void ivu_memory_ops(struct ivu_transport *t)
{
	t->md_ops[IVU_MD_QUERY] = IVU_FN(md_query);
	t->md_ops[IVU_MD_MEM_REG] = IVU_FN(mem_reg);
	t->md_ops[IVU_MD_MEM_DEREG] = IVU_FN(mem_dereg);
	t->pack = pack;
	t->unpack = unpack;
	t->rkey_compare = IVU_FN(rkey_compare);
}
