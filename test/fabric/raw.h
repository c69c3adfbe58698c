/* A rank on another host that uses the core provider directly, and forges its messages. */
#ifndef RAW_H
#define RAW_H

#include "../../fabric/remote/core_ep.h"
#include "harness.h"

#define RAW_CORE \
	"tcp;ofi_rxm" /* fixed for all libfabrics, so that the hostile rank knows the victim's; FABRIC_CORE: another */
#define RAW_LEN 40000

/* The address at which it claims to be reachable. */
enum where { TRUE_ADDRESS, NO_ADDRESS, NONSENSE };

/* An endpoint of the core provider. */
struct raw {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t to;
	uint64_t uid;
	uint32_t seq, seen; /* of the next message */
	uint8_t *memory;    /* RAW_LEN bytes that it registered */
};

/* Opens it. victim: the victim's address, 64 bytes. */
void raw_open(struct raw *r, const uint8_t *victim);
void raw_close(struct raw *r);
/* Returns its address, as that of a rank without a region. */
struct ivs_addr raw_address(const struct raw *r, enum where where);
/* Announces it with this address. */
void raw_hello(struct raw *r, enum where where);
/* Sends a message as wire.c would, and waits until it is sent. */
void raw_send(struct raw *r, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t fixed_len,
	      const void *payload, size_t len);

#endif /* RAW_H */
