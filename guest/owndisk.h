/* The agent of a VM that started from a disk of its own: its channel is its standard input and output. */
#ifndef NM_OWNDISK_H
#define NM_OWNDISK_H

#include "config.h"

/*
 * Makes the VM ready, as the configuration in the file called name beside this program says: its /etc/hosts, and
 * what launchers need. Becomes root by sudo where it is not. Returns the channel's descriptor in a child; the
 * parent carries bytes between that and the standard streams, and ends when either ends. c is filled in.
 */
int owndisk_begin(struct config *c, const char *name);

#endif
