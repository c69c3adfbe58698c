#include <string.h>

#include "region/siphash.h"

#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = ROTL(v[1], 13) ^ v[0];
	v[0] = ROTL(v[0], 32);
	v[2] += v[3];
	v[3] = ROTL(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = ROTL(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = ROTL(v[1], 17) ^ v[2];
	v[2] = ROTL(v[2], 32);
}

uint64_t ivs_siphash(const uint8_t *key, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t k[2], m, v[4];
	size_t left = len;

	memcpy(k, key, sizeof(k));
	v[0] = k[0] ^ 0x736f6d6570736575ULL;
	v[1] = k[1] ^ 0x646f72616e646f6dULL;
	v[2] = k[0] ^ 0x6c7967656e657261ULL;
	v[3] = k[1] ^ 0x7465646279746573ULL;
	for (; left >= 8; left -= 8, p += 8) {
		memcpy(&m, p, 8);
		v[3] ^= m;
		sip_round(v);
		sip_round(v);
		v[0] ^= m;
	}
	m = (uint64_t) len << 56;
	while (left--)
		m |= (uint64_t) p[left] << (8 * left);
	v[3] ^= m;
	sip_round(v);
	sip_round(v);
	v[0] ^= m;
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t ivs_name_hash(const char *text)
{
	static const uint8_t zeros[16];
	uint64_t h = ivs_siphash(zeros, text, strlen(text));

	return h ? h : 1;
}
