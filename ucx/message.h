/* The messages between ranks: the contents of a ring's lines, and the addresses by which ranks find each other. */
#ifndef IVU_MESSAGE_H
#define IVU_MESSAGE_H

#include "abi/abi.h"
#include "ring/ring.h"

#define IVU_FORMAT 6 /* of the messages and addresses: ranks with another format are not reached */

/* Messages: op in a line of a ring. */
#define IVU_OP_PUT     1    /* struct ivu_put, then data for registered memory */
#define IVU_OP_AM      0x40 /* an active message; the id is in the low 5 bits, the first 8 bytes are in the tag */
#define IVU_OP_AM_LAST (IVU_OP_AM + IVU_AM_IDS - 1)

/* Flags of an active message in the ring itself: how many of the tag's 8 bytes are not part of the message. */
#define IVU_MISSING_SHIFT 2
#define IVU_MISSING_MASK  0x3c

struct ivu_put {
	uint64_t addr; /* of the target's memory */
	uint64_t key;
};

/*
 * The number of bounce buffers (geo.bounce_bytes each) that are written to registered memory at once, because each
 * write costs UCX some time.
 */
#define IVU_PIECES 4

/* The data of an active message that has a packed bounce buffer: in the message, before its header. */
struct ivu_packed {
	uint32_t line; /* first line in the sender's pool; the receiver may put the header right before it */
	uint32_t len;  /* bytes */
};

#define IVU_INLINE_MAX (8 + IVS_INLINE_MAX) /* bytes of an active message in the ring itself */
#define IVU_IOV_MAX    8
#define IVU_AM_IOV_MAX 16 /* stated maximum of pieces: UCX and programs keep that many on their stack */
#define IVU_HEADER_MAX 56 /* bytes of a header in the ring before data in a bounce buffer */

/*
 * The active message that contains all of a tagged message, after 8 bytes of header (UCX's UCP_AM_ID_EAGER_ONLY).
 * UCX's result does not depend on whether its bytes change in the meantime, because UCX reads the header once, and
 * copies the rest.
 */
#define IVU_AM_WHOLE	 2
#define IVU_WHOLE_HEADER 8

/*
 * The offset in a page of a message that UCX copies from and to its user's memory. It is chosen so that the data
 * after UCX's header of 8 to 24 bytes is at a distance from the page's begin that no buffer of malloc has. UCX copies
 * with `rep movsb`. On AMD that is thirty times slower if the destination is 1 to 31 bytes behind the source, apart
 * from whole pages.
 */
#define IVU_PAGE      4096
#define IVU_PACKED_AT (64 - 8)

struct ivu_device_addr {
	uint64_t region; /* its ID; 0: none */
	uint64_t kernel; /* hash of the conditions under which UCX's own shared memory reaches a rank */
};

struct ivu_iface_addr {
	uint32_t epoch;
	uint16_t slot;
	uint8_t format; /* IVU_FORMAT */
	uint8_t reserved;
};

#endif /* IVU_MESSAGE_H */
