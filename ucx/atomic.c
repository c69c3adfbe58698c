/*
 * Atomics on a peer's memory in the region, by this CPU's own instructions. UCX's emulation, by which the others
 * access that memory, also uses such instructions, so that all of them are atomic with respect to each other.
 */
#include "atomic.h"
#include "base/common.h"

/* With one operand; compare and swap has a function of its own. */
#define POSTED	(1 << IVU_ATOMIC_ADD | 1 << IVU_ATOMIC_AND | 1 << IVU_ATOMIC_OR | 1 << IVU_ATOMIC_XOR)
#define FETCHED (POSTED | 1 << IVU_ATOMIC_SWAP | 1 << IVU_ATOMIC_CSWAP)

/*
 * Returns the local address of a peer's word, or NULL. A word that straddles two lines would stop all cores; a
 * hostile key may refer to one.
 */
static inline void *word(uintptr_t rkey, uint64_t addr, size_t bytes)
{
	uint8_t *at = ivu_place(rkey, addr, bytes);

	return (uintptr_t) at % bytes ? NULL : at;
}

/* The functions for words of one type. They complete before they return. */
#define ATOMICS(bits) \
	static ivu_status fetch##bits(struct ivu_ep *e, unsigned int op, uint##bits##_t value, uint##bits##_t *before, \
				      uint64_t addr, uintptr_t rkey, struct ivu_completion *comp) \
	{ \
		uint##bits##_t *at = word(rkey, addr, sizeof(*at)); \
\
		(void) e; \
		(void) comp; \
		if (unlikely(!at)) \
			return IVU_ERR_INVALID_PARAM; \
		switch (op) { \
		case IVU_ATOMIC_ADD: *before = __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); return IVU_OK; \
		case IVU_ATOMIC_AND: *before = __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST); return IVU_OK; \
		case IVU_ATOMIC_OR: *before = __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST); return IVU_OK; \
		case IVU_ATOMIC_XOR: *before = __atomic_fetch_xor(at, value, __ATOMIC_SEQ_CST); return IVU_OK; \
		case IVU_ATOMIC_SWAP: *before = __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST); return IVU_OK; \
		} \
		return IVU_ERR_UNSUPPORTED; \
	} \
\
	static ivu_status post##bits(struct ivu_ep *e, unsigned int op, uint##bits##_t value, uint64_t addr, \
				     uintptr_t rkey) \
	{ \
		uint##bits##_t before; \
\
		return fetch##bits(e, op, value, &before, addr, rkey, NULL); \
	} \
\
	static ivu_status cswap##bits(struct ivu_ep *e, uint##bits##_t compare, uint##bits##_t swap, uint64_t addr, \
				      uintptr_t rkey, uint##bits##_t *before, struct ivu_completion *comp) \
	{ \
		uint##bits##_t *at = word(rkey, addr, sizeof(*at)); \
\
		(void) e; \
		(void) comp; \
		if (unlikely(!at)) \
			return IVU_ERR_INVALID_PARAM; \
		__atomic_compare_exchange_n(at, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		*before = compare; \
		return IVU_OK; \
	}

ATOMICS(32)
ATOMICS(64)

void ivu_atomic_ops(struct ivu_iface_ops *ops)
{
	ops->cswap64 = cswap64;
	ops->cswap32 = cswap32;
	ops->post32 = post32;
	ops->post64 = post64;
	ops->fetch32 = fetch32;
	ops->fetch64 = fetch64;
}

void ivu_atomic_query(struct ivu_iface_attr *attr)
{
	attr->atomic32.post = attr->atomic64.post = POSTED;
	attr->atomic32.fetch = attr->atomic64.fetch = FETCHED;
	attr->flags |= IVU_FLAG_ATOMIC_CPU;
}
