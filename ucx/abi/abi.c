/* The differences between the versions of UCX. */
#include <string.h>

#include "abi.h"

#define NAME	IVU_COMPONENT_NAME
#define POINTER sizeof(void *)

static void component(unsigned int minor, struct ivu_abi *a)
{
	size_t entry = minor < 15 ? IVU_CONFIG_ENTRY_1_13 : sizeof(struct ivu_config_entry);
	size_t at = NAME + 6 * POINTER;

	a->rkey_compare = 0;
	if (minor >= 16) {
		a->rkey_compare = at;
		at += POINTER;
	}
	a->md_config = at;
	a->cm_config = a->md_config + entry;
	a->tl_list = a->cm_config + entry;
	a->list = a->tl_list + 2 * POINTER;
	a->flags = a->list + 2 * POINTER;
	a->md_vfs_init = a->flags + sizeof(uint64_t);
	a->tl_entry_list = offsetof(struct ivu_tl, config) + entry;
}

/* Describes the answer to a query: 1.13 has uct_md_attr_t, later versions uct_md_attr_v2_t, which has grown. */
static void attributes(unsigned int minor, struct ivu_abi *a)
{
	size_t at;

	if (minor == 13) {
		a->attr_max_reg = 8;
		a->attr_flags = 16;
		a->attr_reg_mem_types = 24;
		a->attr_access_mem_types = 48;
		at = 56;
	} else {
		a->attr_max_reg = 16;
		a->attr_flags = 24;
		a->attr_reg_mem_types = 32;
		at = 40;
		at += minor >= 15 ? 8 : 0; /* memory that is registered without blocking */
		a->attr_cache_mem_types = at;
		at += 8;
		at += minor >= 18 ? 8 : 0; /* under a global address */
		at += 2 * 8;		   /* that is detected, that is allocated */
		a->attr_access_mem_types = at;
		at += 2 * 8; /* and DMA buffers */
	}
	a->attr_max_alloc = a->attr_max_reg - 8;
	a->attr_alloc_mem_types = a->attr_access_mem_types - 8;
	a->attr_reg_cost = at;
	at += sizeof(struct ivu_linear);
	a->attr_component = at;
	at += IVU_COMPONENT_NAME;
	a->attr_rkey_size = at;
	at += 8;
	a->attr_cpus = at;
	at += 128;
	if (minor > 13)
		at += 8 + 256; /* of exported memory: the size of its key, an ID */
	a->attr_alignment = minor >= 16 ? at : 0;
	at += minor >= 16 ? 8 : 0;
	at += minor >= 22 ? 8 : 0;
	a->attr_bytes = at;
}

bool ivu_abi_of(unsigned int minor, struct ivu_abi *a)
{
	int n = 0;

	if (minor < IVU_MINOR_FIRST || minor > IVU_MINOR_LAST)
		return false;
	memset(a, 0, sizeof(*a));
	component(minor, a);
	attributes(minor, a);
	a->mkey_pack = 8;
	a->mem_attach = minor >= 14 ? 9 : -1;
	a->query_v2 = minor == 20 || minor >= 22 ? n++ : -1;
	a->estimate_perf = n++;
	a->vfs_refresh = n++;
	a->mem_element_pack = minor == 20 ? n++ : -1;
	a->ep_query = n++;
	a->ep_invalidate = n++;
	a->connect_to_ep_v2 = minor >= 14 ? n++ : -1;
	a->is_reachable_v2 = minor >= 15 ? n++ : -1;
	a->is_connected = minor >= 16 ? n++ : -1;
	a->device_ep = minor >= 20 ? n++ : -1;
	a->put_sgl = minor >= 22 ? n++ : -1;
	a->pack_has_range = minor >= 16;
	a->unpack_has_params = minor >= 19;
	a->alloc_has_device = minor >= 19;
	return true;
}
