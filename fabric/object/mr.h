/* Registered memory of this process, and the entries that describe it to its peers. */
#ifndef IVS_MR_H
#define IVS_MR_H

#include <sys/uio.h>

#include <rdma/fi_domain.h>

#include "base/layout.h"
#include "base/limits.h"
#include "object/domain.h"

#define IVS_MR_BUCKETS 1024 /* chains of registered memory, a power of two: 8 KiB per domain, allocated at first use */

struct ivs_cntr;

struct ivs_mr {
	struct fid_mr fid;
	struct ivs_domain *domain;
	struct ivs_mr *next; /* in the hash chain */
	struct iovec iov[IVS_IOV_MAX];
	size_t count;
	size_t len;
	uint64_t origin; /* the peers' address of the first byte */
	uint64_t access;
	uint64_t flags;
	struct ivs_cntr *cntr[2]; /* FI_REMOTE_READ, FI_REMOTE_WRITE */
	int shown;		  /* index in the slots' tables, -1: none */
};

/* Returns the chain of domain->mr_hash for a key. */
static inline size_t ivs_mr_bucket(uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ULL >> 32) & (IVS_MR_BUCKETS - 1);
}

/* Returns the memory under key, or NULL. */
struct ivs_mr *ivs_mr_find_key(struct ivs_domain *domain, uint64_t key);
/* Returns true if registered memory with this access holds each of the pieces. */
bool ivs_mr_covers(const struct ivs_domain *domain, const struct iovec *iov, size_t count, uint64_t access);
/* Returns the registered memory under key that holds [addr, addr + len) with this access, or NULL. */
struct ivs_mr *ivs_mr_find(struct ivs_domain *domain, uint64_t key, uint64_t addr, size_t len, uint64_t access);
/* Turns a checked piece of mr into pieces of memory. Returns their number, or 0 if there are more than max. */
size_t ivs_mr_pieces(const struct ivs_mr *mr, uint64_t addr, size_t len, struct iovec *iov, size_t max);

/* Returns the check word that proves an entry of a slot's table to be its owner's; key: the owner's, 16 bytes. */
uint64_t ivs_mr_check(const uint8_t *key, const struct nm_mr *m, uint32_t slot, uint32_t epoch);
/* Copies an entry that its owner may be changing. Returns its state before the copy. */
uint64_t ivs_mr_copy(const struct nm_mr *from, struct nm_mr *to);

#endif /* IVS_MR_H */
