/* Finds the MPI library and the provider in this process. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"

struct search {
	const char *prefix; /* the file's name begins with it */
	int skip;	    /* matching files to skip */
	char path[PATH_MAX];
};

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Stores the path of the next matching library. Opening it must wait: the loader's locks are held here. */
static int find_in(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;

	(void) size;
	if (strncmp(base(info->dlpi_name), s->prefix, strlen(s->prefix)) || s->skip--)
		return 0;
	snprintf(s->path, sizeof(s->path), "%s", info->dlpi_name);
	return 1;
}

/*
 * Returns the loaded library whose file's name begins with s->prefix and that has symbol, or NULL; s->path is its path.
 * It stays open, because functions found in it will be called.
 */
static void *loaded(struct search *s, const char *symbol)
{
	void *handle;
	int n;

	for (n = 0; s->skip = n, dl_iterate_phdr(find_in, s); n++) {
		handle = dlopen(s->path, RTLD_LAZY | RTLD_NOLOAD);
		if (handle && dlsym(handle, symbol))
			return handle;
		if (handle)
			dlclose(handle);
	}
	return NULL;
}

static void *mpi_library(struct search *s)
{
	s->prefix = "libmpi";
	return loaded(s, "PMPI_Win_create");
}

/* Returns true if function is in this library, which a search for MPI's functions also finds. */
static bool ours(void *function)
{
	Dl_info theirs, mine;

	return dladdr(function, &theirs) && dladdr((void *) (uintptr_t) ours, &mine) &&
	       theirs.dli_fbase == mine.dli_fbase;
}

void *ivm_next(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name), *library;
	struct search s;

	if (p)
		return p;
	library = mpi_library(&s);
	p = library ? dlsym(library, name) : NULL;
	return p && !ours(p) ? p : NULL;
}

/* Returns true for MPICH itself, false for MPIs that share its ABI. */
static bool is_mpich(void *library)
{
	int (*version)(char *, int *);
	char text[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING, of MPICH and of the standard */
	int len = 0;

	*(void **) &version = dlsym(library, "PMPI_Get_library_version");
	return version && !version(text, &len) && !strncmp(text, "MPICH ", strlen("MPICH "));
}

static struct ivm_abi find(void)
{
	/* Values of mpi.h of MPICH 4.0 to 5.0, and of mpi_abi.h, which are the standard's. */
	struct ivm_abi mpich = { true, sizeof(int), 0x4c000405, 0x58000002, 0x66000007, 2, 1024, false };
	struct ivm_abi standard = { true, sizeof(void *), 0x209, 0x22, 604, 312, 1024, false };
	/* Values of mpi.h of Open MPI 4.1 and 5.0, whose handles are addresses of exported objects. */
	struct ivm_abi openmpi = { true, sizeof(void *), 0, 0, 10, 2, 1, false };
	void *library, *type, *op;
	const char *file;
	struct search s;

	library = mpi_library(&s);
	if (!library)
		return (struct ivm_abi) { .known = false };
	file = base(s.path);
	/* A program may contain the objects themselves (copy relocations): it is searched first. */
	type = dlsym(RTLD_DEFAULT, "ompi_mpi_int");
	op = dlsym(RTLD_DEFAULT, "ompi_mpi_op_min");
	openmpi.type_int = (ivm_handle) (type ? type : dlsym(library, "ompi_mpi_int"));
	openmpi.op_min = (ivm_handle) (op ? op : dlsym(library, "ompi_mpi_op_min"));
	if (openmpi.type_int && openmpi.op_min)
		return openmpi;
	standard.counts_posts = mpich.counts_posts = is_mpich(library);
	if (!strncmp(file, "libmpi_abi", strlen("libmpi_abi")))
		return standard;
	/* MPICH and MPIs that share its ABI: Intel MPI, MVAPICH. */
	if (!strncmp(file, "libmpi.so.12", strlen("libmpi.so.12")) ||
	    !strncmp(file, "libmpich.so.12", strlen("libmpich.so.12")))
		return mpich;
	return (struct ivm_abi) { .known = false };
}

static struct ivm_abi found;

static void find_once(void)
{
	found = find();
}

const struct ivm_abi *ivm_abi(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_once);
	return &found;
}

void *ivm_provider(const char *name)
{
	struct search s = { .prefix = "libivshmem-fi.so" };
	void *handle = loaded(&s, name);

	return handle ? dlsym(handle, name) : NULL;
}
