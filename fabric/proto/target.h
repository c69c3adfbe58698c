/*
 * The last few places of peers' registered memory, so that a series of short reads or writes does not search the
 * owner's table (mr.c) each time. A place is valid for as long as its entry of the table has the same key and state:
 * the owner changes the state with everything else. Anything else that the owner, or an attacker, writes there does no
 * harm, because the place was checked to be in the region.
 */
#ifndef IVS_TARGET_H
#define IVS_TARGET_H

#include "object/ep.h"

static inline struct ivs_target *ivs_target_at(struct ivs_ep *ep, fi_addr_t dest, uint64_t key)
{
	return &ep->proto.targets[(dest ^ key) & (IVS_TARGETS - 1)];
}

/*
 * Returns this process's address of len bytes of the peer's memory, at the owner's address addr under key, if the place
 * is known, may be accessed (NM_MR_*) and has not changed since; else NULL.
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

/* Stores the place of m, a checked copy of the entry in this state; base: where its memory is mapped. */
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
