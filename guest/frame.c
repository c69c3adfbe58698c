#include "frame.h"

#include <stdbool.h>

void put32(uint8_t *p, uint32_t n)
{
	p[0] = n;
	p[1] = n >> 8;
	p[2] = n >> 16;
	p[3] = n >> 24;
}

uint32_t get32(const uint8_t *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t) p[3] << 24;
}

void frame_put(uint8_t *p, const struct frame *f)
{
	p[0] = FRAME_MAGIC;
	p[1] = FRAME_VERSION;
	p[2] = f->type;
	p[3] = f->lane;
	put32(p + 4, f->stream);
	put32(p + 8, f->len);
}

const char *frame_get(const uint8_t *p, struct frame *f)
{
	uint32_t least = 0, most = 0, top_lane = 0;
	bool on0 = false, on_streams = true;

	if (p[0] != FRAME_MAGIC)
		return "bytes that are not a frame";
	if (p[1] != FRAME_VERSION)
		return "another version of the protocol";
	f->type = p[2];
	f->lane = p[3];
	f->stream = get32(p + 4);
	f->len = get32(p + 8);
	switch (f->type) {
	case T_HELLO:
		most = HELLO_MAX;
		on0 = true;
		on_streams = false;
		break;
	case T_PING:
	case T_PONG:
		least = most = 8;
		on0 = true;
		on_streams = false;
		break;
	case T_OPEN:
		least = 1;
		most = FRAME_MAX;
		top_lane = 1;
		break;
	case T_DATA:
		least = 1;
		most = f->lane == LANE_MESSAGE ? MESSAGE_MAX : FRAME_MAX;
		top_lane = LANES - 1;
		break;
	case T_CREDIT:
		least = most = 4;
		top_lane = LANES - 1;
		break;
	case T_EOF: top_lane = LANES - 1; break;
	case T_CLOSE: break;
	case T_RESET:
		most = TEXT_MAX;
		on0 = true;
		break;
	default: return "a frame of unknown type";
	}
	if (f->lane > top_lane)
		return "a frame on a lane that it cannot have";
	if (f->len < least || f->len > most)
		return "a frame of a length that it cannot have";
	if (f->stream ? !on_streams : !on0)
		return "a frame on a stream that it cannot have";
	return NULL;
}

uint32_t lane_max(int lane)
{
	return lane == LANE_MESSAGE ? CREDIT_MAX_MESSAGE : CREDIT_MAX;
}

uint32_t lane_initial(int lane)
{
	return lane == LANE_MESSAGE ? CREDIT_MAX_MESSAGE : 64 * 1024;
}
