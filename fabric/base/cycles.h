/* The CPU's clock, and its pause in a loop. */
#ifndef IVS_CYCLES_H
#define IVS_CYCLES_H

#include <stdint.h>

/* A count that goes on with some GHz; 0 where there is none. */
static inline uint64_t ivs_cycles(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

/* In a loop that waits for another core: leaves this one to its other thread, if it has one. */
static inline void ivs_pause(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
	__builtin_ia32_pause();
#endif
}

#endif /* IVS_CYCLES_H */
