/* Detection of the VM's hypervisor. */
#ifndef NM_HYPERVISOR_H
#define NM_HYPERVISOR_H

#include "buf.h"

/* Adds the CPU's name of its hypervisor, from CPUID leaf 0x40000000; nothing outside of a VM. */
void hypervisor_add(struct buf *b);

#endif
