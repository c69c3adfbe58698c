#include <dlfcn.h>
#include <stddef.h>

#include "base/lib.h"

struct ivs_lib ivs_lib;

/* The functions to resolve. ucx/abi/uct.c has a similar table, because it includes no headers of fabric/. */
static const struct {
	const char *name;
	size_t offset;
} wanted[] = {
	{ "fi_getinfo", offsetof(struct ivs_lib, getinfo) },
	{ "fi_freeinfo", offsetof(struct ivs_lib, freeinfo) },
	{ "fi_dupinfo", offsetof(struct ivs_lib, dupinfo) },
	{ "fi_fabric", offsetof(struct ivs_lib, fabric) },
	{ "fi_strerror", offsetof(struct ivs_lib, strerror) },
	{ "fi_param_define", offsetof(struct ivs_lib, param_define) },
	{ "fi_param_get", offsetof(struct ivs_lib, param_get) },
	{ "fi_log_enabled", offsetof(struct ivs_lib, log_enabled) },
	{ "fi_log", offsetof(struct ivs_lib, log) },
};

int ivs_lib_open(void *caller)
{
	uint32_t (*version)(void);
	void *lib = NULL;
	Dl_info info;
	size_t i;

	if (caller && dladdr(caller, &info) && info.dli_fname)
		lib = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!lib || !dlsym(lib, "fi_param_define"))
		lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!lib)
		lib = dlopen(NULL, RTLD_NOW);
	if (!lib)
		return -FI_ENOSYS;
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *sym = dlsym(lib, wanted[i].name);

		if (!sym)
			return -FI_ENOSYS;
		*(void **) ((char *) &ivs_lib + wanted[i].offset) = sym;
	}
	*(void **) &version = dlsym(lib, "fi_version");
	if (!version)
		return -FI_ENOSYS;
	ivs_lib.version = version();
	return 0;
}
