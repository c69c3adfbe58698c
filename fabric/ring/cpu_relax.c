/* How long `pause` takes on this CPU. */
#include "ring/cpu_relax.h"
#include "tune.h"

bool ivs_pause_is_short;

void ivs_cpu_relax_init(void)
{
	uint64_t least = UINT64_MAX, t;
	int turn, i;

	/* The least: what disturbs one turn disturbs another less. */
	for (turn = 0; turn < IVS_PAUSE_TURNS; turn++) {
		t = ivs_cycles();
		for (i = 0; i < IVS_PAUSE_COUNT; i++)
			ivs_pause();
		t = ivs_cycles() - t;
		if (t < least)
			least = t;
	}
	ivs_pause_is_short = least < IVS_PAUSE_COUNT * IVS_PAUSE_SHORT;
}
