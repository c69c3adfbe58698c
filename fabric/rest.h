/* A short rest between two looks at a line that another core writes. */
#ifndef IVS_REST_H
#define IVS_REST_H

#include <stdbool.h>

#include "region.h"

#define IVS_REST_CYCLES	60	/* 15 to 30 ns */

/* `pause` takes about as long, and leaves the core to its other thread; on some CPUs it takes more. */
extern bool ivs_pause_is_short;

/* Measures it, once. */
void ivs_rest_init(void);

static inline void ivs_rest(void)
{
	uint64_t until;
	int i;

	if (ivs_pause_is_short) {
		ivs_pause();
		return;
	}
	until = ivs_cycles() + IVS_REST_CYCLES;
	/* A look at the clock takes 20 cycles or more; one that was set back is not waited for. */
	for (i = 0; i < IVS_REST_CYCLES / 10 && (int64_t) (ivs_cycles() - until) < 0; i++)
		;
}

#endif /* IVS_REST_H */
