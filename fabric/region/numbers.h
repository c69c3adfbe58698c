/*
 * Generates unpredictable numbers at a high rate: the key stream of ChaCha8 (Bernstein, 2008) under a random key from
 * the kernel. A number needs about 30 instructions, a SipHash 173. Eight are generated at once.
 */
#ifndef IVS_NUMBERS_H
#define IVS_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define IVS_NUMBERS_MADE 8 /* of 64 bits, in a block of 64 bytes */

/* A generator. All zeros: not keyed yet. */
struct ivs_numbers {
	uint64_t made[IVS_NUMBERS_MADE];
	uint64_t block; /* number of the next block */
	uint32_t key[8];
	uint32_t left; /* unused numbers in made */
	bool keyed;
};

/* Computes a block of the key stream, after this even number of rounds; the nonce is 0. Separate for its test. */
void ivs_numbers_block(const uint32_t key[8], uint64_t block, int rounds, uint64_t out[IVS_NUMBERS_MADE]);
/* Generates the next eight numbers. Returns false if the kernel has no key for them. */
bool ivs_numbers_make(struct ivs_numbers *numbers);

/* Returns true if a number is available; generates some if not. */
static inline bool ivs_numbers_ready(struct ivs_numbers *numbers)
{
	return __builtin_expect(numbers->left != 0, 1) || ivs_numbers_make(numbers);
}

/* Returns the next number and erases it; call only after ivs_numbers_ready() returned true. */
static inline uint64_t ivs_numbers_take(struct ivs_numbers *numbers)
{
	uint64_t number = numbers->made[--numbers->left];

	numbers->made[numbers->left] = 0;
	return number;
}

#endif /* IVS_NUMBERS_H */
