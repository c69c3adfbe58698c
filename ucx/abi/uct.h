/* The UCX of this process: found at run time, because nothing of it is linked. */
#ifndef IVU_UCT_H
#define IVU_UCT_H

#include "abi.h"

struct ivu_uct {
	unsigned int minor;
	struct ivu_abi abi;
	void (*component_register)(void *component);
	void (*tl_register)(void *component, void *tl);
	ivu_status (*query_single_md)(void *component, void **resources, unsigned int *count);
	void *md_config_table;
	void *iface_config_table;
	ivu_status (*iface_init)(void *self, void *cls, int *count, const struct ivu_iface_ops *ops,
				 void **internal_ops, struct ivu_md *md, void *worker, const void *params,
				 const void *config);
	void *iface_class;
	void (*class_cleanup)(void *cls, void *self, int limit);
	void *estimate_perf;
	void *query_v2; /* NULL before 1.20 */
	void *progress_enable;
	void (*progress_disable)(void *iface, unsigned int flags);
	ivu_status (*handle_ep_err)(void *iface, struct ivu_ep *ep, ivu_status status);
	void *(*malloc)(size_t bytes, const char *name); /* NULL: libc's malloc is used */
};

extern struct ivu_uct ivu_uct;

/*
 * Finds the functions of the UCX whose libuct the handle refers to, in its version 1.minor. Returns NULL, or the
 * reason why that UCX cannot be used.
 */
const char *ivu_uct_open(void *handle, unsigned int major, unsigned int minor);

/* Returns zeroed memory that UCX frees; NULL: none. */
void *ivu_uct_calloc(size_t bytes);

#endif /* IVU_UCT_H */
