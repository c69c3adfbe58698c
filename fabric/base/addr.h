/* The address of an endpoint. */
#ifndef IVS_ADDR_H
#define IVS_ADDR_H

#include <stdint.h>

/*
 * An endpoint's address, of one length everywhere. kind says which fields count.
 */
struct ivs_addr {
	uint8_t kind;	  /* IVS_ADDR_* */
	uint8_t core_len; /* bytes of core, 0: no way over the network */
	uint16_t slot;
	uint32_t epoch;
	uint64_t id;	  /* of the region, or the hash of a name */
	uint8_t core[48]; /* the core provider's address */
};

_Static_assert(sizeof(struct ivs_addr) == 64, "MPICH takes no longer ones");

#define IVS_ADDR_SLOT	1 /* a slot of the region id */
#define IVS_ADDR_NAME	2 /* the rank of this region with the name id */
#define IVS_ADDR_CORE	3 /* only the core provider's address counts */
#define IVS_ADDR_TAGGED 5 /* as that, and tagged messages are sent there as they are */
#define IVS_ADDR_ANY	4 /* whatever the endpoint will get; not of a peer */

/* The address of the rank with this service name. */
void ivs_name_addr(struct ivs_addr *addr, const char *service);

#endif /* IVS_ADDR_H */
