/* Sleeping until something may have come for a queue or a counter. */
#ifndef IVS_SLEEP_H
#define IVS_SLEEP_H

#include "object/wait.h"

/* Has nothing come for arg? Then *mark is how much has come so far. Under the lock. */
typedef bool ivs_quiet_fn(void *arg, uint64_t *mark);
/*
 * Before sleeping, under the domain's lock: shows that we do, and polls once more. Returns
 * the wait timeout in ns, 0: something has come.
 */
uint64_t ivs_wait_arm(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet, void *arg);
/* Sleeps, not under the lock, until something may have come. false: the deadline is over. */
bool ivs_wait_sleep(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet, void *arg,
		    uint64_t deadline);

#endif /* IVS_SLEEP_H */
