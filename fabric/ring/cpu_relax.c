/* How long `pause` takes on this CPU. */
#include "ring/cpu_relax.h"
#include "tune.h"

#define PAUSES 8 /* at once, so that reading the clock (20 cycles or more) adds little to each */
#define TURNS  8 /* such measurements: what disturbs one disturbs not all */

bool ivs_pause_is_short;

void ivs_cpu_relax_init(void)
{
	uint64_t least = UINT64_MAX, t;
	int turn, i;

	for (turn = 0; turn < TURNS; turn++) {
		t = ivs_cycles();
		for (i = 0; i < PAUSES; i++)
			ivs_pause();
		t = ivs_cycles() - t;
		if (t < least)
			least = t;
	}
	ivs_pause_is_short = least < PAUSES * IVS_PAUSE_SHORT;
}
