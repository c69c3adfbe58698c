/* Where a program runs. */
#ifndef NM_WHERE_H
#define NM_WHERE_H

#include <stdbool.h>

/*
 * Are this machine's instructions emulated (QEMU's TCG)? Its timings are then not
 * meaningful. QEMU says so in CPUID leaf 0x40000000.
 */
bool emulated(void);

#endif
