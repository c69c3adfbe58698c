/* The devices of the VM: functions of the host passed through, and soft RoCE. */
#ifndef NM_DEVICES_H
#define NM_DEVICES_H

#include "buf.h"
#include "config.h"

/* Waits for the drivers, brings the links up, sets their addresses. Dies with a line that names a missing device. */
void devices_up(const struct config *c);
/*
 * Adds a field `device` for each: kind, PCI address, driver, interface, MAC, RDMA name, node GUID, state, IP, RDMA
 * port, its link layer, the index of its GID for RoCE v2, NUMA node, MTU and partition key; "-" for missing ones.
 */
void devices_add(struct buf *b);

/* Creates an RDMA device called name, of a type ("rxe", "siw"), on a network interface. Returns 0 or errno. */
int rdma_add_link(const char *name, const char *type, const char *net);

#endif
