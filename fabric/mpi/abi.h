/*
 * Calls of the MPI library of this process, whichever it is. A handle is an int in MPICH
 * and a pointer in Open MPI and in the standard ABI of MPI 5 (chapter 20): as arguments
 * both go through a register unchanged.
 */
#ifndef IVM_ABI_H
#define IVM_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t ivm_handle; /* by value; what is beyond an int's bits is undefined */
typedef intptr_t ivm_aint;    /* MPI_Aint */

#define IVM_SUCCESS 0
#define IVM_EXPORT  __attribute__((visibility("default")))

struct ivm_abi {
	bool known; /* the fields below count */
	size_t handle_bytes;
	ivm_handle type_int; /* MPI_INT */
	ivm_handle op_min;   /* MPI_MIN */
	int key_flavor;	     /* MPI_WIN_CREATE_FLAVOR */
	int flavor_allocate; /* MPI_WIN_FLAVOR_ALLOCATE */
	int nocheck;	     /* MPI_MODE_NOCHECK */
	bool counts_posts;   /* it is MPICH: see sync.c */
};

/* What is different between the MPIs. */
const struct ivm_abi *ivm_abi(void);

/*
 * The function that a call would have reached without this library: the next of that name,
 * and of an MPI that is not in the global scope (a plugin of Python's, say) its own. NULL:
 * there is no MPI.
 */
void *ivm_next(const char *name);

/* A function of the provider's file if it is loaded, or NULL. */
void *ivm_provider(const char *name);

#endif /* IVM_ABI_H */
