/* Sleeping until something may have arrived for a queue or a counter. */
#ifndef IVS_SLEEP_H
#define IVS_SLEEP_H

#include "object/wait.h"

/* Returns true if nothing has arrived for arg, with the amount that has arrived so far in *mark. Under the lock. */
typedef bool ivs_quiet_fn(void *arg, uint64_t *mark);
/*
 * Prepares for sleeping, under the domain's lock: shows that this rank sleeps, and polls once more. Returns the wait
 * timeout in ns, or 0 if something has arrived.
 */
uint64_t ivs_wait_arm(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet, void *arg);
/* Sleeps, without the lock, until something may have arrived. Returns false if the deadline had already passed. */
bool ivs_wait_sleep(struct ivs_domain *domain, struct ivs_wait *wait, ivs_quiet_fn *quiet, void *arg,
		    uint64_t deadline);

#endif /* IVS_SLEEP_H */
