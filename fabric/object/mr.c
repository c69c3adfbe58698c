/* Registered memory by its key, and its entries in the region. */
#include "object/mr.h"
#include "region/siphash.h"

struct ivs_mr *ivs_mr_find_key(struct ivs_domain *domain, uint64_t key)
{
	struct ivs_mr *mr;

	if (!domain->mr_hash)
		return NULL;
	for (mr = domain->mr_hash[ivs_mr_bucket(key)]; mr; mr = mr->next)
		if (mr->fid.key == key)
			return mr;
	return NULL;
}

struct ivs_mr *ivs_mr_find(struct ivs_domain *domain, uint64_t key, uint64_t addr, size_t len, uint64_t access)
{
	struct ivs_mr *mr = ivs_mr_find_key(domain, key);

	if (!mr || (mr->access & access) != access || addr < mr->origin || addr - mr->origin > mr->len ||
	    len > mr->len - (addr - mr->origin))
		return NULL;
	return mr;
}

static bool holds(const struct ivs_mr *mr, const struct iovec *piece)
{
	size_t i;

	for (i = 0; i < mr->count; i++) {
		uintptr_t at = (uintptr_t) piece->iov_base - (uintptr_t) mr->iov[i].iov_base;

		if (at <= mr->iov[i].iov_len && piece->iov_len <= mr->iov[i].iov_len - at)
			return true;
	}
	return false;
}

bool ivs_mr_covers(const struct ivs_domain *domain, const struct iovec *iov, size_t count, uint64_t access)
{
	size_t done = 0, bucket;

	for (; done < count; done++) {
		const struct ivs_mr *mr = NULL;

		for (bucket = 0; !mr && bucket < IVS_MR_BUCKETS; bucket++)
			for (mr = domain->mr_hash[bucket]; mr; mr = mr->next)
				if (mr->access & access && holds(mr, &iov[done]))
					break;
		if (!mr)
			return false;
	}
	return true;
}

size_t ivs_mr_pieces(const struct ivs_mr *mr, uint64_t addr, size_t len, struct iovec *iov, size_t max)
{
	uint64_t offset = addr - mr->origin;
	size_t i, n = 0, k;

	for (i = 0; i < mr->count && len; i++) {
		if (offset >= mr->iov[i].iov_len) {
			offset -= mr->iov[i].iov_len;
			continue;
		}
		if (n == max)
			return 0;
		k = mr->iov[i].iov_len - offset;
		if (k > len)
			k = len;
		iov[n].iov_base = (char *) mr->iov[i].iov_base + offset;
		iov[n++].iov_len = k;
		len -= k;
		offset = 0;
	}
	return n;
}

#define MR_WORDS (sizeof(struct nm_mr) / sizeof(uint64_t))

uint64_t ivs_mr_copy(const struct nm_mr *from, struct nm_mr *to)
{
	const uint64_t *f = (const uint64_t *) (const void *) from;
	uint64_t *t = (uint64_t *) (void *) to;
	size_t i;

	t[0] = __atomic_load_n(&f[0], __ATOMIC_ACQUIRE);
	for (i = 1; i < MR_WORDS; i++)
		t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
	return t[0];
}

uint64_t ivs_mr_check(const uint8_t *key, const struct nm_mr *m, uint32_t slot, uint32_t epoch)
{
	uint64_t data[6] = {
		m->key, m->base, m->len, m->origin, (uint64_t) m->access << 32 | m->valid, (uint64_t) slot << 32 | epoch
	};

	return ivs_siphash(key, data, sizeof(data));
}
