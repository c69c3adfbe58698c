/*
 * What the provider ivshmem offers beyond libfabric's own interface, through
 * fi_open_ops(&domain->fid, NM_FABRIC_MEMORY, 0, &ops, NULL).
 */
#ifndef NEARMETAL_FABRIC_H
#define NEARMETAL_FABRIC_H

#include <stddef.h>

struct fid_domain;

#define NM_FABRIC_MEMORY "nearmetal_memory"

struct nm_fabric_memory {
	size_t size; /* of this structure */
	/*
	 * Returns len bytes in the region, aligned to a page, or NULL: there is no
	 * region, or no room in this rank's part of it. Sends from there are copied
	 * once; registered with fi_mr_reg, peers read and write it with plain loads
	 * and stores. Its contents are not defined.
	 */
	void *(*alloc)(struct fid_domain *domain, size_t len);
	/* Frees what alloc returned. */
	void (*free)(struct fid_domain *domain, void *memory);
	/* Is [memory, memory + len) in the region? */
	int (*inside)(struct fid_domain *domain, const void *memory, size_t len);
};

/*
 * The same for a library that knows of no domain, as symbols of the provider's file: in
 * the part of any of the process's ranks. What was not given back stays as it is until the
 * process ends, whatever is closed. Room for full rings to everybody is kept, though not
 * more than half of a rank's part.
 */
__attribute__((visibility("default"))) void *nm_fabric_alloc(size_t len);
/* 0, or -1: memory is not of nm_fabric_alloc(). */
__attribute__((visibility("default"))) int nm_fabric_free(void *memory);

#endif /* NEARMETAL_FABRIC_H */
