/* Completion counters. */
#ifndef IVS_CNTR_H
#define IVS_CNTR_H

#include <rdma/fi_eq.h>

#include "object/domain.h"
#include "object/wait.h"

struct ivs_cntr {
	struct fid_cntr fid;
	struct ivs_domain *domain;
	int refs;
	enum fi_wait_obj wait_obj;
	struct ivs_wait wait;
	uint64_t value;
	uint64_t errors;
	uint64_t seen, seen_errors; /* values at the last read */
	bool bytes;		    /* FI_CNTR_EVENTS_BYTES */
};

/* Wakes a thread that waits for the counter. */
static inline void ivs_cntr_wake(struct ivs_cntr *cntr)
{
	cntr->wait.armed = false;
	ivs_wait_signal(&cntr->wait);
}

static inline void ivs_cntr_inc(struct ivs_cntr *cntr, size_t bytes)
{
	if (likely(!cntr))
		return;
	__atomic_store_n(&cntr->value, cntr->value + (cntr->bytes ? bytes : 1), __ATOMIC_RELEASE);
	if (unlikely(cntr->wait.armed))
		ivs_cntr_wake(cntr);
}

static inline void ivs_cntr_fail(struct ivs_cntr *cntr)
{
	if (!cntr)
		return;
	__atomic_store_n(&cntr->errors, cntr->errors + 1, __ATOMIC_RELEASE);
	if (unlikely(cntr->wait.armed))
		ivs_cntr_wake(cntr);
}

#endif /* IVS_CNTR_H */
