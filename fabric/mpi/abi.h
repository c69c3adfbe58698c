/*
 * Calls of this process's MPI library, which may be any. A handle is an int in MPICH, and a pointer in Open MPI and in
 * the standard ABI of MPI 5 (chapter 20): as arguments both are passed in a register unchanged.
 */
#ifndef IVM_ABI_H
#define IVM_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t ivm_handle; /* by value; bits beyond those of an int are undefined */
typedef intptr_t ivm_aint;    /* MPI_Aint */

#define IVM_SUCCESS 0
#define IVM_EXPORT  __attribute__((visibility("default")))

struct ivm_abi {
	bool known; /* the fields below are valid */
	size_t handle_bytes;
	ivm_handle type_int; /* MPI_INT */
	ivm_handle op_min;   /* MPI_MIN */
	int key_flavor;	     /* MPI_WIN_CREATE_FLAVOR */
	int flavor_allocate; /* MPI_WIN_FLAVOR_ALLOCATE */
	int nocheck;	     /* MPI_MODE_NOCHECK */
	bool counts_posts;   /* the library is MPICH: see sync.c */
};

/* Returns the differences between the MPIs for the one in this process. */
const struct ivm_abi *ivm_abi(void);

/*
 * Returns the function that a call would have reached without this library: the next of that name, or the MPI's own if
 * the MPI is not in the global scope (in a Python plugin, for example). Returns NULL without an MPI.
 */
void *ivm_next(const char *name);

/* Returns a function of the provider's file if that is loaded, or NULL. */
void *ivm_provider(const char *name);

#endif /* IVM_ABI_H */
