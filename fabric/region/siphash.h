/* SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of a short message. */
#ifndef IVS_SIPHASH_H
#define IVS_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns the hash of data; key is 16 bytes. */
uint64_t ivs_siphash(const uint8_t *key, const void *data, size_t len);

/* Returns a hash of text under a key of zeros, never 0. */
uint64_t ivs_name_hash(const char *text);

#endif
