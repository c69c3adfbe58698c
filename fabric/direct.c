/*
 * To read a neighbour's memory is one copy in place of two, but it begins with a system call, which
 * takes as long as some KiB do, and then the kernel copies no faster than a core does. Where
 * that pays depends on the kernel, on the CPU and on the caches between the two cores: from 8 KiB on (a
 * Xeon with 2 MiB of cache for each core), or hardly below 256 KiB (Zen 3, where 8 KiB take 1.4 us by two
 * copies and 3.5 so). So it is measured, for each peer and size.
 */
#include "direct.h"

#define LEARN	16	/* messages, by turns in either way, before a choice */
#define UNKNOWN	2048	/* after so many that told nothing, as if it paid */
#define PROBE	256	/* then one of so many goes the other way */

static struct ivs_cost *class(struct ivs_direct *direct, size_t len, uint32_t **turn)
{
	int i = 0;

	while (i < IVS_DIRECT_CLASSES - 1 && len >= IVS_DIRECT_SURE >> (IVS_DIRECT_CLASSES - 1 - i))
		i++;
	*turn = &direct->turn[i];
	return &direct->cost[i];
}

bool ivs_direct_better(struct ivs_direct *direct, size_t len, uint64_t copies, bool alone)
{
	uint32_t *turn, t, cost = ivs_cost_least(class(direct, len, &turn));
	bool better = !copies || !cost || (uint64_t) cost * len / 1024 < copies;

	if (!alone)
		return better;
	t = (*turn)++;
	if (t < LEARN || (t < UNKNOWN && (!copies || !cost)))
		return t % 2 == 0;
	return better != (t % PROBE == 0);
}

void ivs_direct_took(struct ivs_direct *direct, size_t len, uint64_t cycles)
{
	uint32_t *turn;

	ivs_cost_add(class(direct, len, &turn), cycles, len ? len : 1);
}
