/* What libfabric loads. */
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
	/* A provider older than the interface that is asked for would be passed over. */
	ivs_prov.fi_version = ivs_lib.version;
	ivs_copy_init();
	ivs_cpu_relax_init();
	ivs_param_init();
	return &ivs_prov;
}

int ivs_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	(void) fid;
	(void) bfid;
	(void) flags;
	return -FI_ENOSYS;
}

int ivs_no_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) command;
	(void) arg;
	return -FI_ENOSYS;
}

int ivs_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops,
		    void *context)
{
	(void) fid;
	(void) name;
	(void) flags;
	(void) ops;
	(void) context;
	return -FI_ENOSYS;
}

const char *ivs_error_text(int prov_errno, char *buf, size_t len)
{
	const char *text = ivs_lib.strerror(prov_errno < 0 ? -prov_errno : prov_errno);

	if (buf && len) {
		strncpy(buf, text, len - 1);
		buf[len - 1] = 0;
	}
	return text;
}
