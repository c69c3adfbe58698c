/* The provider's entry point, which libfabric loads. */
#include "base/lib.h"
#include "base/limits.h"
#include "base/param.h"
#include "ofi/open.h"
#include "ring/copy.h"
#include "ring/cpu_relax.h"

static void cleanup(void)
{
}

struct fi_provider ivs_prov = {
	.name = IVS_NAME,
	.getinfo = ivs_getinfo,
	.fabric = ivs_fabric_open,
	.cleanup = cleanup,
};

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	if (ivs_lib_open(__builtin_return_address(0)))
		return NULL;
	ivs_prov.version = IVS_VERSION;
	/* libfabric ignores a provider that is older than the requested interface. */
	ivs_prov.fi_version = ivs_lib.version;
	ivs_copy_init();
	ivs_cpu_relax_init();
	ivs_param_init();
	return &ivs_prov;
}
