/*
 * Adds the transport to an unmodified UCX. As LD_PRELOAD this library precedes UCX's own uct_query_components(),
 * which UCX calls to list its transports. As a plugin (UCX_PLUGIN_PATH, from 1.22 on) UCX loads it itself and calls
 * ucs_module_global_init(). In both cases the library finds the UCX in use, regardless of its version. An unknown
 * version is left unchanged.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pthread.h>

#include <nearmetal/region.h>

#include "abi/abi.h"
#include "abi/log.h"
#include "abi/uct.h"
#include "region/discovery.h"
#include "register.h"

#define EXPORT __attribute__((visibility("default")))

typedef ivu_status (*query_components)(void ***components, unsigned int *count);
typedef ivu_status (*config_read)(const char *prefix, const char *file, void **config);
typedef void (*get_version)(unsigned int *major, unsigned int *minor, unsigned int *release);

EXPORT ivu_status uct_query_components(void ***components, unsigned int *count);
EXPORT ivu_status ucp_config_read(const char *prefix, const char *file, void **config);
EXPORT void ucs_module_global_init(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *offered_to; /* the uct_query_components() of the UCX that has the transport */
static bool region_there;

/* Finds a name in a library and its dependencies; without one, in the libraries after this one. */
static void *find(void *library, const char *name)
{
	return dlsym(library ? library : RTLD_NEXT, name);
}

/* Registers the transport with the UCX of that library, once. */
static void offer(void *library, void *query)
{
	get_version version;
	unsigned int major = 0, minor = 0, release = 0;
	const char *wrong;
	Dl_info info;
	void *uct;

	pthread_mutex_lock(&lock);
	if (offered_to)
		goto out;
	*(void **) &version = find(library, "ucp_get_version");
	if (!version)
		*(void **) &version = dlsym(RTLD_DEFAULT, "ucp_get_version");
	if (version)
		version(&major, &minor, &release);
	/* The library must stay loaded, because its lists refer to memory of this one. */
	uct = dladdr(query, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (!uct)
		goto out;
	wrong = ivu_uct_open(uct, major, minor);
	offered_to = query;
	if (wrong) {
		ivu_report("%s: %s (%u.%u.%u): the region is not used", info.dli_fname, wrong, major, minor, release);
		goto out;
	}
	ivu_register();
	ivu_report("UCX %u.%u.%u, %s: it has the transport ivshmem", major, minor, release, info.dli_fname);
out:
	pthread_mutex_unlock(&lock);
}

/* Returns the library that contains the code at caller. NULL: the program itself, or not known. */
static void *library_of(void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

/*
 * Returns UCX's own function that one of this library's, called at caller, hides. Sets the library that leads to it,
 * NULL: none known.
 */
static void *behind(const char *name, const void *ours, void *caller, void **library)
{
	void *real;

	*library = library_of(caller);
	real = *library ? find(*library, name) : NULL;
	if (real && real != ours)
		return real;
	*library = NULL;
	return find(NULL, name);
}

ivu_status uct_query_components(void ***components, unsigned int *count)
{
	query_components real;
	void *library;

	*(void **) &real = behind("uct_query_components", (void *) (uintptr_t) uct_query_components,
				  __builtin_return_address(0), &library);
	if (!real)
		return IVU_ERR_UNSUPPORTED;
	offer(library, (void *) (uintptr_t) real);
	return real(components, count);
}

/*
 * Up to 1.15 UCX lets the receiver of a rendezvous read, by any transport that can. This transport can only write, so
 * that with an RDMA device all large messages within a host would use that. A rendezvous that writes uses the region,
 * and the device to other hosts. Later versions compare both themselves.
 */
ivu_status ucp_config_read(const char *prefix, const char *file, void **config)
{
	unsigned int major = 0, minor = 0, release = 0;
	get_version version;
	config_read real;
	void *library;

	*(void **) &real =
		behind("ucp_config_read", (void *) (uintptr_t) ucp_config_read, __builtin_return_address(0), &library);
	if (!real)
		return IVU_ERR_UNSUPPORTED;
	*(void **) &version = find(library, "ucp_get_version");
	if (version)
		version(&major, &minor, &release);
	if (region_there && major == 1 && minor <= IVU_MINOR_READS)
		setenv("UCX_RNDV_SCHEME", "put_zcopy", 0);
	return real(prefix, file, config);
}

/* Finds a libuct among the process's libraries. */
static int find_uct(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void) size;
	if (!name || strncmp(name, "/libuct", 7) || !strncmp(name, "/libuct_", 8))
		return 0;
	*(void **) arg = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
	return *(void **) arg != NULL;
}

static int find_ucp(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');

	(void) size;
	if (!name || strncmp(name, "/libucp", 7))
		return 0;
	*(void **) arg = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
	return *(void **) arg != NULL;
}

void ucs_module_global_init(void)
{
	void *uct = NULL, *ucp = NULL, *query;

	dl_iterate_phdr(find_uct, &uct);
	dl_iterate_phdr(find_ucp, &ucp);
	query = uct ? dlsym(uct, "uct_query_components") : NULL;
	if (query && query != (void *) (uintptr_t) uct_query_components)
		offer(ucp ? ucp : uct, query);
}

/* Detects and reports a library or program that contains UCX's own code and is not one of its shared libraries. */
static int find_static(struct dl_phdr_info *info, size_t size, void *arg)
{
	/* UCX's messages contain the name of this source file. */
	static const char name[] = "ucp_context.c";
	const char *file = strrchr(info->dlpi_name, '/');
	Dl_info own;
	int i;

	(void) size;
	(void) arg;
	if ((file && !strncmp(file, "/libuc", 6)) || !dladdr(name, &own) || own.dli_fbase == (void *) info->dlpi_addr)
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || p->p_flags & PF_W || !(p->p_flags & PF_R))
			continue;
		if (!memmem((void *) (info->dlpi_addr + p->p_vaddr), p->p_filesz, name, sizeof(name) - 1))
			continue;
		ivu_report("%s: a UCX is linked into it, which is not reached: the region is not used",
			   *info->dlpi_name ? info->dlpi_name : program_invocation_name);
		return 1;
	}
	return 0;
}

/* Called at the program's end, because the program may have loaded libraries in the meantime. */
__attribute__((destructor)) static void report_static(void)
{
	if (!offered_to && ivu_report_wanted())
		dl_iterate_phdr(find_static, NULL);
}

/*
 * Makes UCX allocate its programs' memory where ranks of other VMs can also reach it, if there is room, and otherwise
 * as usual.
 */
static void name_allocator(void)
{
	region_there = true;
	setenv("UCX_ALLOC_PRIO", "md:" IVU_WINDOW_NAME ",md:sysv,md:posix,huge,thp,md:*,mmap,heap", 0);
}

/*
 * Up to 1.17 Open MPI reaches other hosts only by the devices in UCX_NET_DEVICES, and a list there excludes all
 * others. UCX reads it before it queries transports, so the device is added at the program's start.
 */
__attribute__((constructor)) static void name_device(void)
{
	const char *devices = getenv("UCX_NET_DEVICES"), *named = getenv("NEARMETAL_REGION");
	bool there;
	char found[320], *more;

	if (named && !*named)
		named = NULL;
	there = !access(named ? named : NM_REGION_DEVICE, R_OK | W_OK);
	if (there)
		name_allocator();
	if (!devices || !*devices || *devices == '^' || strstr(devices, "all") || strstr(devices, IVU_DEVICE))
		return;
	/*
	 * The region of a VM that nearmetal has not made. The check is last, because every program with the preload
	 * executes this function.
	 */
	if (!there) {
		if (named || !ivs_region_find(found, sizeof(found)))
			return;
		name_allocator();
	}
	if (asprintf(&more, "%s," IVU_DEVICE "," IVU_WINDOW_DEVICE, devices) < 0)
		return;
	setenv("UCX_NET_DEVICES", more, 1);
	free(more);
}
