/*
 * The messages between two ranks, in the same format in a ring and over a core provider: a head (op, flags, tag), a
 * fixed part that depends on op, then payload. Their senders may be hostile: each field is checked before it is used.
 */
#ifndef IVS_MESSAGE_H
#define IVS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/layout.h"
#include "base/limits.h"

enum ivs_op {
	IVS_OP_NONE,
	IVS_OP_TAGGED, /* a complete message */
	IVS_OP_MSG,
	IVS_OP_TAGGED_LONG, /* the start of a long message: struct ivs_long */
	IVS_OP_MSG_LONG,
	IVS_OP_TAGGED_RTS, /* a message that can be read in place: struct ivs_rendezvous_read, or ivs_core_rts */
	IVS_OP_MSG_RTS,
	IVS_OP_DATA,	  /* another piece of a long message: struct ivs_part, tag is the offset */
	IVS_OP_CTS,	  /* requests the remaining pieces: tag is the id */
	IVS_OP_ACK,	  /* the message was received: tag is status << 32 | id */
	IVS_OP_WRITE,	  /* struct ivs_rma, then data */
	IVS_OP_READ,	  /* struct ivs_rma */
	IVS_OP_RESULT,	  /* data of a read or fetch: struct ivs_part, tag is the offset */
	IVS_OP_ATOMIC,	  /* struct ivs_atomic, then operands */
	IVS_OP_EVENT,	  /* a direct write with remote CQ data, the tag: 8 bytes of length */
	IVS_OP_COOP,	  /* asks the sender to copy a part, named in our ledger (coop_copy.c) */
	IVS_OP_COOP_END,  /* the cooperative copy has ended: tag is the id */
	IVS_OP_SHOWN_ACK, /* an ACK whose tag is an answer that only the receiver can compute (proto/shown.h) */
	IVS_OP_SHOWN_CTS, /* a CTS with such an answer */
	IVS_OP_COUNT
};

#define IVS_F_BOUNCE 1	 /* the payload is in a bounce buffer: struct ivs_bounce comes first */
#define IVS_F_DATA   2	 /* 8 bytes of remote CQ data */
#define IVS_F_ACK    4	 /* the sender wants an ACK; 8 bytes with the id */
#define IVS_F_CTS    8	 /* the sender waits for a CTS */
#define IVS_F_REGION 16	 /* RTS: the addresses are offsets in the region */
#define IVS_F_COOP   32	 /* RTS: the sender copies a part of the message if asked to */
#define IVS_F_NT     64	 /* BOUNCE: the buffer was written non-temporally */
#define IVS_F_CORE   64	 /* RTS: read through the core provider, which is the only carrier of such an RTS */
#define IVS_F_TIME   128 /* BOUNCE: report the cost of reading it in nm_ring_ctl.cost */

struct ivs_bounce {
	uint32_t page; /* the buffer's first page in the sender's pool */
	uint32_t len;  /* bytes */
};

struct ivs_long {
	uint64_t total; /* bytes */
	uint64_t data;
	uint32_t id;
	uint32_t pad;
};

struct ivs_rendezvous_read {
	uint64_t total;
	uint64_t data;
	uint32_t id;
	uint32_t count; /* pieces in the region; 0: the message is in the sender's memory (proto/shown.h) */
	struct {
		uint64_t addr, len;
	} iov[IVS_IOV_MAX];
};

/* Bytes of an RTS without IVS_F_REGION, which has no pieces. */
#define IVS_RTS_SHOWN_BYTES offsetof(struct ivs_rendezvous_read, iov)

/*
 * An RTS with IVS_F_CORE: the message is one piece, at addr of the memory that the sender registered with the core
 * provider under key.
 */
struct ivs_core_rts {
	uint64_t total;
	uint64_t data;
	uint32_t id;
	uint32_t pad;
	uint64_t addr, key;
};

struct ivs_part {
	uint32_t id;
	int32_t status; /* RESULT: 0 or a negative error */
};

struct ivs_rma {
	uint64_t total;
	uint64_t data;
	uint32_t id;
	uint32_t count;
	struct {
		uint64_t addr, len, key;
	} rma[IVS_IOV_MAX];
};

struct ivs_atomic {
	struct ivs_rma rma; /* lens in bytes; total: of one operand */
	uint8_t type;	    /* enum fi_datatype */
	uint8_t op;	    /* enum fi_op */
	uint8_t kind;	    /* IVS_ATOMIC_* */
	uint8_t pad[5];
};

#define IVS_ATOMIC_WRITE   0 /* changes the target */
#define IVS_ATOMIC_FETCH   1 /* also returns the previous value */
#define IVS_ATOMIC_COMPARE 2 /* only if the comparison with the operand's second half holds */

_Static_assert(sizeof(struct ivs_atomic) + sizeof(struct ivs_bounce) <= IVS_INLINE_MAX, "every fixed part fits a ring");

/* Returns the bytes of the fixed part of op. */
static inline size_t ivs_fixed_bytes(uint8_t op, uint8_t flags)
{
	switch (op) {
	case IVS_OP_TAGGED:
	case IVS_OP_MSG: return (flags & IVS_F_DATA ? 8 : 0) + (flags & IVS_F_ACK ? 8 : 0);
	case IVS_OP_TAGGED_LONG:
	case IVS_OP_MSG_LONG: return sizeof(struct ivs_long);
	case IVS_OP_TAGGED_RTS:
	case IVS_OP_MSG_RTS:
		return flags & IVS_F_REGION ? sizeof(struct ivs_rendezvous_read)
		       : flags & IVS_F_CORE ? sizeof(struct ivs_core_rts)
					    : IVS_RTS_SHOWN_BYTES;
	case IVS_OP_DATA:
	case IVS_OP_RESULT: return sizeof(struct ivs_part);
	case IVS_OP_WRITE:
	case IVS_OP_READ: return sizeof(struct ivs_rma);
	case IVS_OP_ATOMIC: return sizeof(struct ivs_atomic);
	case IVS_OP_EVENT: return sizeof(uint64_t);
	default: return 0;
	}
}

/* An outgoing message. */
struct ivs_packet {
	uint8_t op, flags;
	uint16_t fixed_len;
	uint64_t tag;
	const void *fixed;
	const struct iovec *iov; /* payload: len bytes from offset on */
	size_t count, offset, len;
};

#endif /* IVS_MESSAGE_H */
