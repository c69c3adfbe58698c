#include <string.h>

#include "base/lib.h"
#include "remote/named.h"

/* Reduces a list to the entries of the provider with this name. */
static void keep_only(struct fi_info **info, const char *name)
{
	struct fi_info *f;

	while ((f = *info)) {
		const char *has = f->fabric_attr ? f->fabric_attr->prov_name : NULL;

		if (has && !strcmp(has, name)) {
			info = &f->next;
			continue;
		}
		*info = f->next;
		f->next = NULL;
		ivs_lib.freeinfo(f);
	}
}

int ivs_named(uint32_t version, uint64_t flags, struct fi_info *hints, struct fi_info **info)
{
	char *name = hints->fabric_attr->prov_name, *end = strchr(name, ';');
	int ret = ivs_lib.getinfo(version, NULL, NULL, flags, hints, info);

	if (ret != -FI_ENODATA || !end)
		return ret;
	/*
	 * Intel MPI's libfabric (seen: 2.4.0-impi) finds nothing by a name of two parts. By the first part it finds all
	 * providers that are layered on it.
	 */
	*end = 0;
	ret = ivs_lib.getinfo(version, NULL, NULL, flags, hints, info);
	*end = ';';
	if (ret)
		return ret;
	keep_only(info, name);
	return *info ? 0 : -FI_ENODATA;
}
