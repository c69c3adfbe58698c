/* The address of an endpoint. */
#ifndef IVS_ADDR_H
#define IVS_ADDR_H

#include <stdint.h>

/* An endpoint's address, whose length is the same for every kind. kind determines which fields are valid. */
struct ivs_addr {
	uint8_t kind;	  /* IVS_ADDR_* */
	uint8_t core_len; /* length of core in bytes, 0: not reachable over the network */
	uint16_t slot;
	uint32_t epoch;
	uint64_t id;	  /* id of the region, or the hash of a name */
	uint8_t core[48]; /* the core provider's address */
};

_Static_assert(sizeof(struct ivs_addr) == 64, "MPICH takes no longer ones");

#define IVS_ADDR_SLOT	1 /* a slot of the region with this id */
#define IVS_ADDR_NAME	2 /* the rank of this region whose name has the hash id */
#define IVS_ADDR_CORE	3 /* only the core provider's address is valid */
#define IVS_ADDR_TAGGED 5 /* like IVS_ADDR_CORE, and tagged messages are passed through to the core provider */
#define IVS_ADDR_ANY	4 /* any address, chosen when the endpoint is enabled; never a peer's */

/* Sets addr to the address of the rank with this service name. */
void ivs_name_addr(struct ivs_addr *addr, const char *service);

#endif /* IVS_ADDR_H */
