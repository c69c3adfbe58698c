/* The frames of the channel, as specified in docs/channel.md. */
#ifndef NM_FRAME_H
#define NM_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum {
	FRAME_MAGIC = 0x4e,
	FRAME_VERSION = 1,
	FRAME_HEADER = 12,
	FRAME_MAX = 64 * 1024,	  /* bytes of payload */
	HEADER_MAX = 1024 * 1024, /* bytes of a stream's kind and header */
	MESSAGE_MAX = 2048,
	TEXT_MAX = 1024, /* bytes of a RESET's text */
	HELLO_MAX = 4096,
};

enum { LANE_DATA, LANE_ERROR, LANE_MESSAGE, LANES };

enum { CREDIT_MAX = 256 * 1024, CREDIT_MAX_MESSAGE = 4096 };

enum frame_type {
	T_HELLO = 1,
	T_PING,
	T_PONG,
	T_OPEN,
	T_DATA,
	T_CREDIT,
	T_EOF,
	T_CLOSE,
	T_RESET,
};

struct frame {
	uint8_t type, lane;
	uint32_t stream, len;
};

void put32(uint8_t *p, uint32_t n);
uint32_t get32(const uint8_t *p);
void frame_put(uint8_t *p, const struct frame *f);
/* Reads and checks the FRAME_HEADER bytes at p; returns NULL, or the fault. */
const char *frame_get(const uint8_t *p, struct frame *f);
/* The maximum of granted and unused bytes on a lane, and the initial grant. */
uint32_t lane_max(int lane);
uint32_t lane_initial(int lane);

#endif
