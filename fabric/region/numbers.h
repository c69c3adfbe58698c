/*
 * Numbers that nobody can guess, many of them: the key stream of ChaCha8 (Bernstein, 2008) under a key of the
 * kernel's. A number takes about 30 instructions, where a SipHash takes 173. Eight are made at once.
 */
#ifndef IVS_NUMBERS_H
#define IVS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define IVS_NUMBERS_MADE 8 /* of 64 bits, in a block of 64 bytes */

/* Zeros: it has no key yet. */
struct ivs_numbers {
	uint64_t made[IVS_NUMBERS_MADE];
	uint64_t block; /* the next one's number */
	uint32_t key[8];
	uint32_t left; /* of made */
	bool keyed;
};

/* A block of the key stream, after this even number of rounds; the nonce is 0. Stands alone for its test. */
void ivs_numbers_block(const uint32_t key[8], uint64_t block, int rounds, uint64_t out[IVS_NUMBERS_MADE]);
/* Makes the next eight. false: the kernel has no key for them. */
bool ivs_numbers_make(struct ivs_numbers *numbers);

/* Is there one? Makes some if there is none. */
static inline bool ivs_numbers_ready(struct ivs_numbers *numbers)
{
	return __builtin_expect(numbers->left != 0, 1) || ivs_numbers_make(numbers);
}

/* The next one: ivs_numbers_ready() was true. It is not kept. */
static inline uint64_t ivs_numbers_take(struct ivs_numbers *numbers)
{
	uint64_t number = numbers->made[--numbers->left];

	numbers->made[numbers->left] = 0;
	return number;
}

#endif /* IVS_NUMBERS_H */
