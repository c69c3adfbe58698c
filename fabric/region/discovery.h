/* Finding a region without a configured path. */
#ifndef IVS_DISCOVERY_H
#define IVS_DISCOVERY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Finds a region among the devices that this user may open: devdax first (2 MiB pages, write-back), then the ivshmem
 * PCI devices. Returns true with its path in path, of size bytes.
 */
bool ivs_region_find(char *path, size_t size);

#endif /* IVS_DISCOVERY_H */
