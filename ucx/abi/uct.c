#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "uct.h"

struct ivu_uct ivu_uct;

static const struct {
	const char *name;
	size_t offset;
} wanted[] = {
	{ "uct_component_register", offsetof(struct ivu_uct, component_register) },
	{ "uct_tl_register", offsetof(struct ivu_uct, tl_register) },
	{ "uct_md_query_single_md_resource", offsetof(struct ivu_uct, query_single_md) },
	{ "uct_md_config_table", offsetof(struct ivu_uct, md_config_table) },
	{ "uct_iface_config_table", offsetof(struct ivu_uct, iface_config_table) },
	{ "uct_base_iface_t_init", offsetof(struct ivu_uct, iface_init) },
	{ "uct_base_iface_t_class", offsetof(struct ivu_uct, iface_class) },
	{ "ucs_class_call_cleanup_chain", offsetof(struct ivu_uct, class_cleanup) },
	{ "uct_base_iface_estimate_perf", offsetof(struct ivu_uct, estimate_perf) },
	{ "uct_base_iface_progress_enable", offsetof(struct ivu_uct, progress_enable) },
	{ "uct_base_iface_progress_disable", offsetof(struct ivu_uct, progress_disable) },
	{ "uct_iface_handle_ep_err", offsetof(struct ivu_uct, handle_ep_err) },
};

const char *ivu_uct_open(void *handle, unsigned int major, unsigned int minor)
{
	struct ivu_uct u = { .minor = minor };
	size_t i;

	if (major != 1 || !ivu_abi_of(minor, &u.abi))
		return "a version of UCX that is not known here";
	/* With statistics each structure has additional fields. */
	if (dlsym(handle, "ucs_stats_node_alloc"))
		return "a UCX that was built with statistics";
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *sym = dlsym(handle, wanted[i].name);

		if (!sym)
			return "a UCX without the functions that a transport calls";
		memcpy((char *) &u + wanted[i].offset, &sym, sizeof(sym));
	}
	u.query_v2 = dlsym(handle, "uct_iface_base_query_v2");
	if (u.abi.query_v2 >= 0 && !u.query_v2)
		return "a UCX without the functions that a transport calls";
	/* Only a build that counts memory has its own. */
	*(void **) &u.malloc = dlsym(handle, "ucs_malloc");
	ivu_uct = u;
	return NULL;
}

void *ivu_uct_calloc(size_t bytes)
{
	void *p = ivu_uct.malloc ? ivu_uct.malloc(bytes, "ivshmem") : malloc(bytes);

	if (p)
		memset(p, 0, bytes);
	return p;
}
