/* Copying to and from the region. */
#ifndef IVS_COPY_H
#define IVS_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "tune.h"

/*
 * Copies len bytes that do not overlap, in the fastest way between two cores for that length: the C library's memcpy is
 * slow for some lengths, and much slower under TCG.
 */
extern void (*ivs_copy_large)(void *dst, const void *src, size_t len);
/* Like ivs_copy_large, for memory that the other side reads at some later time. */
extern void (*ivs_copy_put)(void *dst, const void *src, size_t len);
/* Copies like ivs_copy_large, but non-temporally, to memory; nontemporal.h explains when. NULL: not on this CPU. */
extern void (*ivs_copy_nt)(void *dst, const void *src, size_t len);

/* Chooses these functions for this CPU. */
void ivs_copy_init(void);

#if defined(__x86_64__) && defined(__GNUC__)
typedef uint64_t ivs_u64a __attribute__((may_alias, aligned(1)));
typedef uint32_t ivs_u32a __attribute__((may_alias, aligned(1)));
typedef uint16_t ivs_u16a __attribute__((may_alias, aligned(1)));
typedef long long ivs_v2 __attribute__((vector_size(16), may_alias, aligned(1)));

/* Copies like memcpy, for lengths mostly below some hundred bytes: no call, few branches. */
static inline void ivs_copy_small(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;

	if (len >= 16) {
		ivs_v2 last = *(const ivs_v2 *) (s + len - 16);
		size_t i;

		for (i = 0; i + 16 < len; i += 16)
			*(ivs_v2 *) (d + i) = *(const ivs_v2 *) (s + i);
		*(ivs_v2 *) (d + len - 16) = last;
	} else if (len >= 8) {
		uint64_t a = *(const ivs_u64a *) s;
		uint64_t b = *(const ivs_u64a *) (s + len - 8);

		*(ivs_u64a *) d = a;
		*(ivs_u64a *) (d + len - 8) = b;
	} else if (len >= 4) {
		uint32_t a = *(const ivs_u32a *) s;
		uint32_t b = *(const ivs_u32a *) (s + len - 4);

		*(ivs_u32a *) d = a;
		*(ivs_u32a *) (d + len - 4) = b;
	} else if (len >= 2) {
		uint16_t a = *(const ivs_u16a *) s;
		uint16_t b = *(const ivs_u16a *) (s + len - 2);

		*(ivs_u16a *) d = a;
		*(ivs_u16a *) (d + len - 2) = b;
	} else if (len) {
		*d = *s;
	}
}
#else
static inline void ivs_copy_small(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}
#endif

/* Fetches a line that is going to be written. */
static inline void ivs_prefetch_own(void *line)
{
#if defined(__x86_64__) && defined(__GNUC__)
	/* The compiler's builtin would fetch it only for reading, for CPUs older than this one. */
	__asm__ volatile("prefetchw %0" : : "m"(*(char *) line));
#else
	__builtin_prefetch(line, 1);
#endif
}

static inline void ivs_copy(void *dst, const void *src, size_t len)
{
	if (len <= IVS_COPY_SMALL)
		ivs_copy_small(dst, src, len);
	else
		ivs_copy_large(dst, src, len);
}

/* Returns the bytes in count pieces. */
static inline size_t ivs_iov_bytes(const struct iovec *iov, size_t count)
{
	size_t i, sum = 0;

	for (i = 0; i < count; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* Copies up to len bytes, from byte offset of the pieces on, to buf. Returns the number of bytes copied. */
size_t ivs_iov_gather(void *buf, size_t len, const struct iovec *iov, size_t count, size_t offset);

/* Copies up to len bytes from buf into the pieces, from byte offset on. Returns the number of bytes copied. */
size_t ivs_iov_scatter(const struct iovec *iov, size_t count, size_t offset, const void *buf, size_t len);

#endif /* IVS_COPY_H */
