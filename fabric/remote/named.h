/* Asks libfabric for a core provider by its name. */
#ifndef IVS_NAMED_H
#define IVS_NAMED_H

#include <stdint.h>

#include <rdma/fabric.h>

/*
 * Calls fi_getinfo() for the provider that hints name, with this version and these flags. A name of two parts,
 * "verbs;ofi_rxm", is also found if the library finds it only by its first part; hints are changed during the call.
 * Returns 0, or the result of fi_getinfo().
 */
int ivs_named(uint32_t version, uint64_t flags, struct fi_info *hints, struct fi_info **info);

#endif /* IVS_NAMED_H */
