/* The CPU's cycle counter and its pause instruction. */
#ifndef IVS_CYCLES_H
#define IVS_CYCLES_H

#include <stdint.h>

/* Returns a counter that runs at some GHz, or 0 on CPUs without one. */
static inline uint64_t ivs_cycles(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

/* Yields the core to its other hardware thread, in a loop that waits for another core. */
static inline void ivs_pause(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	__builtin_ia32_pause();
#endif
}

#endif /* IVS_CYCLES_H */
