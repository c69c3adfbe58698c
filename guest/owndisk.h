/* The agent of a VM that booted from a disk of its own: its channel is its standard input and output. */
#ifndef NM_OWNDISK_H
#define NM_OWNDISK_H

#include "config.h"

/*
 * Prepares the VM according to the configuration in the file called name in the directory of this program: its
 * /etc/hosts, and the needs of launchers. Becomes root by sudo if necessary. Returns the channel's descriptor in a
 * child; the parent copies bytes between that and the standard streams, and exits when either ends. c is filled in.
 */
int owndisk_begin(struct config *c, const char *name);

#endif
