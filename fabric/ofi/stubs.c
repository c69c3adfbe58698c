/* Functions that objects share: calls that they do not support, and the text of an error. */
#include <string.h>

#include "base/lib.h"
#include "ofi/open.h"

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

int ivs_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
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
