/*
 * Where peers' registered memory is: the last few places that were found, so that a
 * row of short reads or writes does not go through the owner's table (mr.c) each time. A place is good
 * for as long as its line of the table says the same key and state: the owner changes the state
 * with all else. What the owner, or somebody hostile, writes there otherwise does no harm, as the
 * place was checked to lie in the region.
 */
#ifndef IVS_TARGET_H
#define IVS_TARGET_H

#include "object/ep.h"

static inline struct ivs_target *ivs_target_at(struct ivs_ep *ep, fi_addr_t dest, uint64_t key)
{
	return &ep->proto.targets[(dest ^ key) & (IVS_TARGETS - 1)];
}

/*
 * The memory of p's that it calls addr, under key, of len bytes, if it was found before, may be
 * accessed (NM_MR_*) and has not changed since; else NULL.
 */
static inline uint8_t *ivs_target_find(const struct ivs_target *t, const struct ivs_peer *p, uint64_t key,
				       uint64_t addr, size_t len, uint32_t access)
{
	if (unlikely(!t->line || t->key != key || t->slot != p->slot || t->epoch != p->epoch ||
		     __atomic_load_n(&t->line->state, __ATOMIC_ACQUIRE) != t->state ||
		     __atomic_load_n(&t->line->key, __ATOMIC_RELAXED) != key || (t->access & access) != access ||
		     addr < t->origin || addr - t->origin > t->len || len > t->len - (addr - t->origin)))
		return NULL;
	return t->base + (addr - t->origin);
}

/* Remembers m, a copy of the line, which was made in this state and checked; base: where it is. */
static inline void ivs_target_keep(struct ivs_target *t, const struct ivs_peer *p, const struct nm_mr *line,
				   const struct nm_mr *m, uint64_t state, uint8_t *base)
{
	*t = (struct ivs_target) {
		.line = line,
		.slot = p->slot,
		.epoch = p->epoch,
		.state = state,
		.key = m->key,
		.origin = m->origin,
		.len = m->len,
		.base = base,
		.access = m->access,
	};
}

#endif /* IVS_TARGET_H */
