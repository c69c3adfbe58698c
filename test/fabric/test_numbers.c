/* Compares the ChaCha key stream with published ones, and tests the numbers made from it. */
#include <stdio.h>
#include <string.h>

#include "region/numbers.h"

static int bad;

static void check(const char *what, const void *got, const uint8_t *want, size_t len)
{
	if (!memcmp(got, want, len))
		return;
	printf("%s: another stream\n", what);
	bad = 1;
}

int main(void)
{
	/* RFC 8439, A.1, test vectors 1 and 2: key and nonce of zeros, 20 rounds. */
	static const uint8_t rfc0[] = { 0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90,
					0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28 };
	static const uint8_t rfc1[] = { 0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a,
					0x98, 0xba, 0x97, 0x7c, 0x73, 0x2d, 0x08, 0x0d };
	/* draft-strombergson-chacha-test-vectors, TC1: the same, 8 rounds. */
	static const uint8_t tc1[] = { 0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6,
				       0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1 };
	static const uint32_t zeros[8];
	struct ivs_numbers n[2] = { { .left = 0 } };
	uint64_t out[IVS_NUMBERS_MADE], seen[4 * IVS_NUMBERS_MADE], first = 0;

	ivs_numbers_block(zeros, 0, 20, out);
	check("RFC 8439, block 0", out, rfc0, sizeof(rfc0));
	ivs_numbers_block(zeros, 1, 20, out);
	check("RFC 8439, block 1", out, rfc1, sizeof(rfc1));
	ivs_numbers_block(zeros, 0, 8, out);
	check("TC1, 8 rounds", out, tc1, sizeof(tc1));

	/* No number occurs twice, none is kept, and another process has others. */
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		if (!ivs_numbers_ready(&n[0]) || !ivs_numbers_ready(&n[1]))
			return 1;
		seen[i] = ivs_numbers_take(&n[0]);
		first = ivs_numbers_take(&n[1]);
		for (size_t k = 0; k < i; k++)
			if (seen[k] == seen[i])
				bad = 1;
		if (first == seen[i] || n[0].made[n[0].left])
			bad = 1;
	}
	if (bad)
		printf("numbers: bad\n");
	return bad;
}
