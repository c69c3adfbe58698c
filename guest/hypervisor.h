/* Which hypervisor the VM has. */
#ifndef NM_HYPERVISOR_H
#define NM_HYPERVISOR_H

#include "buf.h"

/* Adds the word that the CPU names its hypervisor by, CPUID leaf 0x40000000; nothing outside of a VM. */
void hypervisor_add(struct buf *b);

#endif
