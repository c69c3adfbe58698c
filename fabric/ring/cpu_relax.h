/* A short pause between two polls of a line that another core writes. */
#ifndef IVS_CPU_RELAX_H
#define IVS_CPU_RELAX_H

#include <stdbool.h>

#include "base/cycles.h"
#include "tune.h"

/*
 * `pause` lasts about as long as needed, and leaves the core to its other thread. On some CPUs it lasts longer (false).
 */
extern bool ivs_pause_is_short;

/* Measures `pause` once. */
void ivs_cpu_relax_init(void);

static inline void ivs_cpu_relax(void)
{
	uint64_t until;
	int i;

	if (ivs_pause_is_short) {
		ivs_pause();
		return;
	}
	until = ivs_cycles() + IVS_RELAX_CYCLES;
	/* Reading the clock needs 20 cycles or more. The loop ends even if the clock was set back. */
	for (i = 0; i < IVS_RELAX_CYCLES / 10 && (int64_t) (ivs_cycles() - until) < 0; i++)
		;
}

#endif /* IVS_CPU_RELAX_H */
