/*
 * MPI_Alloc_mem from the region while there is room, else from the MPI. Both names of each function are covered,
 * because an MPI's Fortran bindings call the second.
 */
#include <nearmetal/fabric.h>

#include "memory.h"

static void *(*provider_alloc)(size_t);
static int (*provider_free)(void *);

void *ivm_alloc(ivm_aint bytes)
{
	if (bytes <= 0)
		return NULL;
	/* The provider may be loaded after the first call. */
	if (!__atomic_load_n(&provider_alloc, __ATOMIC_ACQUIRE)) {
		void *a = ivm_provider("nm_fabric_alloc"), *f = ivm_provider("nm_fabric_free");

		if (!a || !f)
			return NULL;
		__atomic_store_n(&provider_free, (int (*)(void *)) f, __ATOMIC_RELEASE);
		__atomic_store_n(&provider_alloc, (void *(*) (size_t) ) a, __ATOMIC_RELEASE);
	}
	return provider_alloc((size_t) bytes);
}

bool ivm_free(void *memory)
{
	int (*f)(void *) = __atomic_load_n(&provider_free, __ATOMIC_ACQUIRE);

	return f && memory && !f(memory);
}

typedef int alloc_mem(ivm_aint size, ivm_handle info, void *baseptr);
typedef int free_mem(void *base);

static int alloc(const char *name, ivm_aint size, ivm_handle info, void *baseptr)
{
	alloc_mem *next;
	void *p = ivm_alloc(size);

	if (p) {
		*(void **) baseptr = p;
		return IVM_SUCCESS;
	}
	next = (alloc_mem *) ivm_next(name);
	return next ? next(size, info, baseptr) : -1;
}

static int give(const char *name, void *base)
{
	free_mem *next;

	if (ivm_free(base))
		return IVM_SUCCESS;
	next = (free_mem *) ivm_next(name);
	return next ? next(base) : -1;
}

IVM_EXPORT alloc_mem MPI_Alloc_mem, PMPI_Alloc_mem;
IVM_EXPORT free_mem MPI_Free_mem, PMPI_Free_mem;

int MPI_Alloc_mem(ivm_aint size, ivm_handle info, void *baseptr)
{
	return alloc("MPI_Alloc_mem", size, info, baseptr);
}

int PMPI_Alloc_mem(ivm_aint size, ivm_handle info, void *baseptr)
{
	return alloc("PMPI_Alloc_mem", size, info, baseptr);
}

int MPI_Free_mem(void *base)
{
	return give("MPI_Free_mem", base);
}

int PMPI_Free_mem(void *base)
{
	return give("PMPI_Free_mem", base);
}
