/* Where a program runs. */
#ifndef NM_WHERE_H
#define NM_WHERE_H

#include <stdbool.h>

/*
 * Returns whether this machine's instructions are emulated (QEMU's TCG), in which case its timings are not
 * meaningful. QEMU reports it in CPUID leaf 0x40000000.
 */
bool emulated(void);

#endif
