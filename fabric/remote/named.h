/* What libfabric offers by a core provider's name. */
#ifndef IVS_NAMED_H
#define IVS_NAMED_H

#include <stdint.h>

#include <rdma/fabric.h>

/*
 * fi_getinfo() for the provider that hints name, with that version and those flags. A name of two parts,
 * "verbs;ofi_rxm", is found where the library finds it by its first part only. hints are changed
 * then. Returns 0, or what fi_getinfo() returns.
 */
int ivs_named(uint32_t version, uint64_t flags, struct fi_info *hints, struct fi_info **info);

#endif /* IVS_NAMED_H */
