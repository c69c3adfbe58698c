#include <string.h>
#include <sys/random.h>

#include "region/numbers.h"

/* A row of the ChaCha state: each operation applies to four words at once. */
typedef uint32_t row __attribute__((vector_size(16)));

#define ROTL(v, n) ((v) << (n) | (v) >> (32 - (n)))

#ifdef __clang__
#define TURN(v, a, b, c, d) __builtin_shufflevector(v, v, a, b, c, d)
#else
#define TURN(v, a, b, c, d) __builtin_shuffle(v, (row) { a, b, c, d })
#endif

void ivs_numbers_block(const uint32_t key[8], uint64_t block, int rounds, uint64_t out[IVS_NUMBERS_MADE])
{
	const row first[4] = {
		{ 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }, /* "expand 32-byte k" */
		{ key[0], key[1], key[2], key[3] },
		{ key[4], key[5], key[6], key[7] },
		{ (uint32_t) block, (uint32_t) (block >> 32), 0, 0 },
	};
	row a = first[0], b = first[1], c = first[2], d = first[3];

	for (int i = 0; i < rounds; i++) {
		a += b;
		d ^= a;
		d = ROTL(d, 16);
		c += d;
		b ^= c;
		b = ROTL(b, 12);
		a += b;
		d ^= a;
		d = ROTL(d, 8);
		c += d;
		b ^= c;
		b = ROTL(b, 7);
		/* From columns to diagonals, or back. */
		if (i % 2) {
			b = TURN(b, 3, 0, 1, 2);
			d = TURN(d, 1, 2, 3, 0);
		} else {
			b = TURN(b, 1, 2, 3, 0);
			d = TURN(d, 3, 0, 1, 2);
		}
		c = TURN(c, 2, 3, 0, 1);
	}
	a += first[0];
	b += first[1];
	c += first[2];
	d += first[3];
	memcpy(out, &a, sizeof(a));
	memcpy(out + 2, &b, sizeof(b));
	memcpy(out + 4, &c, sizeof(c));
	memcpy(out + 6, &d, sizeof(d));
}

bool ivs_numbers_make(struct ivs_numbers *numbers)
{
	if (!numbers->keyed && getrandom(numbers->key, sizeof(numbers->key), 0) != sizeof(numbers->key))
		return false;
	numbers->keyed = true;
	ivs_numbers_block(numbers->key, numbers->block++, 8, numbers->made);
	numbers->left = IVS_NUMBERS_MADE;
	return true;
}
