/* Registered memory: of this process, and as its peers see it. */
#ifndef IVS_MR_H
#define IVS_MR_H

#include <sys/uio.h>

#include <rdma/fi_domain.h>

#include "base/layout.h"
#include "base/limits.h"
#include "object/domain.h"

#define IVS_MR_BUCKETS 1024 /* chains of registered memory, a power of two: 8 KiB a domain, made at its first */

struct ivs_cntr;

struct ivs_mr {
	struct fid_mr fid;
	struct ivs_domain *domain;
	struct ivs_mr *next; /* in the hash */
	struct iovec iov[IVS_IOV_MAX];
	size_t count;
	size_t len;
	uint64_t origin; /* what peers call the first byte */
	uint64_t access;
	uint64_t flags;
	struct ivs_cntr *cntr[2]; /* FI_REMOTE_READ, FI_REMOTE_WRITE */
	int shown;		  /* index in the slots' tables, -1: not there */
};

/* The chain of domain->mr_hash that a key is in. */
static inline size_t ivs_mr_bucket(uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ULL >> 32) & (IVS_MR_BUCKETS - 1);
}

/* The memory under key, or NULL. */
struct ivs_mr *ivs_mr_find_key(struct ivs_domain *domain, uint64_t key);
/* Does registered memory with all of this access hold each of the pieces? */
bool ivs_mr_covers(const struct ivs_domain *domain, const struct iovec *iov, size_t count, uint64_t access);
/* The region under key that holds [addr, addr + len) with access, or NULL. */
struct ivs_mr *ivs_mr_find(struct ivs_domain *domain, uint64_t key, uint64_t addr, size_t len, uint64_t access);
/* Turns a checked piece of mr into pieces of memory; returns how many, 0: too many. */
size_t ivs_mr_pieces(const struct ivs_mr *mr, uint64_t addr, size_t len, struct iovec *iov, size_t max);

/* What makes a line of a slot's table its owner's: key is the owner's, 16 bytes. */
uint64_t ivs_mr_check(const uint8_t *key, const struct nm_mr *m, uint32_t slot, uint32_t epoch);
/* Copies a line that its owner may be changing. Returns its state before the copy. */
uint64_t ivs_mr_copy(const struct nm_mr *from, struct nm_mr *to);

#endif /* IVS_MR_H */
