/*
 * The interface that the provider ivshmem offers in addition to libfabric's own, through fi_open_ops(&domain->fid,
 * NM_FABRIC_MEMORY, 0, &ops, NULL).
 */
#ifndef NEARMETAL_FABRIC_H
#define NEARMETAL_FABRIC_H

#include <stddef.h>

struct fid_domain;

#define NM_FABRIC_MEMORY "nearmetal_memory"

struct nm_fabric_memory {
	size_t size; /* of this structure */
	/*
	 * Returns len bytes in the region, aligned to a page, or NULL without a region or without room in this rank's
	 * part of it. Sends from this memory are copied once; after fi_mr_reg, peers read and write it with plain
	 * loads and stores. Its contents are undefined.
	 */
	void *(*alloc)(struct fid_domain *domain, size_t len);
	/* Frees memory that alloc returned. */
	void (*free)(struct fid_domain *domain, void *memory);
	/* Returns whether [memory, memory + len) is in the region. */
	int (*inside)(struct fid_domain *domain, const void *memory, size_t len);
};

/*
 * nm_fabric_alloc() and nm_fabric_free() are alloc() and free() for a library that has no domain, as symbols of the
 * provider's file. They use the part of any of the process's ranks. Memory that is not freed stays valid until the
 * process ends, regardless of what is closed. Room for full rings to all ranks is reserved, though not more than half
 * of a rank's part.
 */
__attribute__((visibility("default"))) void *nm_fabric_alloc(size_t len);
/* Returns 0, or -1 if memory is not from nm_fabric_alloc(). */
__attribute__((visibility("default"))) int nm_fabric_free(void *memory);

#endif /* NEARMETAL_FABRIC_H */
