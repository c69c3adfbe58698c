/* How long `pause` takes on this CPU. */
#include "rest.h"

#define PAUSES	8	/* measured at once */
#define TURNS	8
#define SHORT	100	/* cycles: 40 to 65 on many CPUs, 140 and more on Intel's since Skylake */

bool ivs_pause_is_short;

void ivs_rest_init(void)
{
	uint64_t least = UINT64_MAX, t;
	int turn, i;

	/* The least: what disturbs one turn disturbs another less. */
	for (turn = 0; turn < TURNS; turn++) {
		t = ivs_cycles();
		for (i = 0; i < PAUSES; i++)
			ivs_pause();
		t = ivs_cycles() - t;
		if (t < least)
			least = t;
	}
	ivs_pause_is_short = least < PAUSES * SHORT;
}
