/*
 * The functions of libfabric that the provider calls. They are resolved at run time in the library that loaded the
 * provider: a name bound at link time would get the oldest version of its symbol, whose structures may be smaller than
 * those the library works with.
 */
#ifndef IVS_LIB_H
#define IVS_LIB_H

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

struct ivs_lib {
	uint32_t version; /* fi_version() */
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int errnum);
	int (*param_define)(const struct fi_provider *provider, const char *name, enum fi_param_type type,
			    const char *help, ...);
	int (*param_get)(struct fi_provider *provider, const char *name, void *value);
	int (*log_enabled)(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys);
	void (*log)(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
		    const char *func, int line, const char *fmt, ...) FI_FORMAT_PRINTF(6, 7);
};

extern struct ivs_lib ivs_lib;
/* The provider that log messages name: ofi/prov.c defines it for the provider, ucx/base.c for the UCX transport. */
extern struct fi_provider ivs_prov;

/*
 * Resolves the functions in the library that holds the code at caller, else in any libfabric.so.1 of the process.
 * Returns 0, or -FI_ENOSYS if a function is missing.
 */
int ivs_lib_open(void *caller);

#define IVS_LOG(level, subsys, ...) \
	do { \
		if (ivs_lib.log_enabled(&ivs_prov, level, subsys)) \
			ivs_lib.log(&ivs_prov, level, subsys, __func__, __LINE__, __VA_ARGS__); \
	} while (0)
#define IVS_WARN(subsys, ...) IVS_LOG(FI_LOG_WARN, subsys, __VA_ARGS__)
#define IVS_INFO(subsys, ...) IVS_LOG(FI_LOG_INFO, subsys, __VA_ARGS__)

#endif /* IVS_LIB_H */
