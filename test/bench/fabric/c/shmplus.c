/*
 * shmplus: libfabric's provider shm, which also says that it offers FI_REMOTE_COMM. Open
 * MPI asks for that, and will not measure shm without. Nothing is in the way of a message:
 * only the calls that open a domain or an endpoint come by here.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

static int (*lib_getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
static struct fi_info *(*lib_dupinfo)(const struct fi_info *);
static void (*lib_freeinfo)(struct fi_info *);
static int (*lib_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);

static struct fi_ops_fabric fabric_ops;
static struct fi_ops_domain domain_ops;
static int (*shm_domain)(struct fid_fabric *, struct fi_info *, struct fid_domain **, void *);
static int (*shm_endpoint)(struct fid_domain *, struct fi_info *, struct fid_ep **, void *);

static struct fi_info *without(const struct fi_info *info)
{
	struct fi_info *i = lib_dupinfo(info);

	if (!i)
		return NULL;
	i->caps &= ~FI_REMOTE_COMM;
	if (i->domain_attr)
		i->domain_attr->caps &= ~FI_REMOTE_COMM;
	if (i->fabric_attr) {
		free(i->fabric_attr->prov_name);
		i->fabric_attr->prov_name = strdup("shm");
	}
	return i;
}

static int plus_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			const struct fi_info *hints, struct fi_info **out)
{
	struct fi_info *h, *i;
	int ret;

	if (!hints || !(h = without(hints)))
		return -FI_ENODATA;
	ret = lib_getinfo(version, node, service, flags, h, out);
	lib_freeinfo(h);
	if (ret)
		return ret;
	for (i = *out; i; i = i->next) {
		i->caps |= FI_REMOTE_COMM;
		i->domain_attr->caps |= FI_REMOTE_COMM;
		/* libfabric puts ours there. */
		free(i->fabric_attr->prov_name);
		i->fabric_attr->prov_name = NULL;
	}
	return 0;
}

static int plus_endpoint(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context)
{
	struct fi_info *i = without(info);
	int ret = i ? shm_endpoint(d, i, ep, context) : -FI_ENOMEM;

	if (i)
		lib_freeinfo(i);
	return ret;
}

static int plus_domain(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d, void *context)
{
	struct fi_info *i = without(info);
	int ret = i ? shm_domain(f, i, d, context) : -FI_ENOMEM;

	if (i)
		lib_freeinfo(i);
	if (ret)
		return ret;
	if (!shm_endpoint) {
		shm_endpoint = (*d)->ops->endpoint;
		domain_ops = *(*d)->ops;
		domain_ops.endpoint = plus_endpoint;
	}
	(*d)->ops = &domain_ops;
	return 0;
}

static int plus_fabric(struct fi_fabric_attr *attr, struct fid_fabric **f, void *context)
{
	struct fi_fabric_attr a = *attr;
	char name[] = "shm";
	int ret;

	a.prov_name = name;
	ret = lib_fabric(&a, f, context);
	if (ret)
		return ret;
	if (!shm_domain) {
		shm_domain = (*f)->ops->domain;
		fabric_ops = *(*f)->ops;
		fabric_ops.domain = plus_domain;
	}
	(*f)->ops = &fabric_ops;
	return 0;
}

/* As floor.c ends: each of these providers is one file that is built by itself. */
static void plus_cleanup(void)
{
}

static struct fi_provider plus = {
	.name = "shmplus",
	.version = FI_VERSION(1, 0),
	.getinfo = plus_getinfo,
	.fabric = plus_fabric,
	.cleanup = plus_cleanup,
};

FI_EXT_INI
{
	void *lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
	uint32_t (*version)(void);

	if (!lib)
		return NULL;
	*(void **) &lib_getinfo = dlsym(lib, "fi_getinfo");
	*(void **) &lib_dupinfo = dlsym(lib, "fi_dupinfo");
	*(void **) &lib_freeinfo = dlsym(lib, "fi_freeinfo");
	*(void **) &lib_fabric = dlsym(lib, "fi_fabric");
	*(void **) &version = dlsym(lib, "fi_version");
	if (!lib_getinfo || !lib_dupinfo || !lib_freeinfo || !lib_fabric || !version)
		return NULL;
	plus.fi_version = version();
	return &plus;
}
