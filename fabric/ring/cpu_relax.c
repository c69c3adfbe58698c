/* Measures how long `pause` lasts on this CPU. */
#include "ring/cpu_relax.h"
#include "tune.h"

#define PAUSES 8 /* pauses per measurement, so that reading the clock (20 cycles or more) adds little to each */
#define TURNS  8 /* measurements: a disturbance does not affect all of them */

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
