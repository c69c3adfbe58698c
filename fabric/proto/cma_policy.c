/*
 * A rendezvous read makes one copy instead of two. But it begins with a system call, which costs as much as some KiB,
 * and the kernel copies no faster than a core does. The size from which it is faster depends on the kernel, the CPU and
 * the caches between the two cores: from 8 KiB (a Xeon with 2 MiB of cache for each core), or hardly below 256 KiB (Zen
 * 3: 8 KiB need 1.4 us by two copies, 3.5 us by a rendezvous read). Therefore it is measured, for each peer and size.
 */
#include "proto/cma_policy.h"
#include "tune.h"

/* Returns the class of a message of len bytes. */
static int class_of(size_t len)
{
	int i = 0;

	while (i < IVS_CMA_POLICY_CLASSES - 1 && len >= IVS_CMA_POLICY_SURE >> (IVS_CMA_POLICY_CLASSES - 1 - i))
		i++;
	return i;
}

bool ivs_cma_policy_better(struct ivs_cma_policy *policy, size_t len, uint64_t copies, bool alone)
{
	const struct ivs_adapt_rate rate = {
		.learn = IVS_ADAPT_LEARN,
		.unknown = 8 * IVS_CMA_POLICY_PROBE,
		.probe = IVS_CMA_POLICY_PROBE,
		.margin = IVS_CMA_POLICY_PROBE,
	};
	int class = class_of(len);
	struct ivs_adapt *way = &policy->way[class];
	uint32_t cost = ivs_cost_least(&policy->cost[class]);
	bool known = copies && cost;

	if (known)
		ivs_adapt_compare(way, &rate, copies, (uint64_t) cost * len / 1024);
	else
		way->on = true;
	return alone ? ivs_adapt_next(way, &rate, known) : way->on;
}

void ivs_cma_policy_took(struct ivs_cma_policy *policy, size_t len, uint64_t cycles)
{
	ivs_cost_add(&policy->cost[class_of(len)], cycles, len ? len : 1);
}
