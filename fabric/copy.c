#include "copy.h"

static void copy_libc(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

void (*ivs_copy_large)(void *dst, const void *src, size_t len) = copy_libc;

#ifdef __x86_64__
#include <immintrin.h>

/* len is 128 or more: the last piece may overlap the one before. */
__attribute__((target("avx")))
static void copy_avx(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;
	const char *end = s + len - 128;
	char *dend = d + len - 128;
	size_t head;

	if (len < 128) {
		memcpy(dst, src, len);
		return;
	}
	/* Stores that straddle lines cost twice: align them. */
	head = -(uintptr_t) d & 31;
	if (head) {
		_mm256_storeu_si256((void *) d, _mm256_loadu_si256((const void *) s));
		d += head;
		s += head;
	}
	for (; s < end; s += 128, d += 128) {
		__m256i a = _mm256_loadu_si256((const void *) s);
		__m256i b = _mm256_loadu_si256((const void *) (s + 32));
		__m256i c = _mm256_loadu_si256((const void *) (s + 64));
		__m256i e = _mm256_loadu_si256((const void *) (s + 96));

		_mm256_store_si256((void *) d, a);
		_mm256_store_si256((void *) (d + 32), b);
		_mm256_store_si256((void *) (d + 64), c);
		_mm256_store_si256((void *) (d + 96), e);
	}
	_mm256_storeu_si256((void *) dend, _mm256_loadu_si256((const void *) end));
	_mm256_storeu_si256((void *) (dend + 32),
			    _mm256_loadu_si256((const void *) (end + 32)));
	_mm256_storeu_si256((void *) (dend + 64),
			    _mm256_loadu_si256((const void *) (end + 64)));
	_mm256_storeu_si256((void *) (dend + 96),
			    _mm256_loadu_si256((const void *) (end + 96)));
	_mm256_zeroupper();
}
#endif

void ivs_copy_init(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx"))
		ivs_copy_large = copy_avx;
#endif
}

size_t ivs_iov_gather(void *buf, size_t len, const struct iovec *iov, size_t count,
		      size_t offset)
{
	size_t done = 0, i, n;

	for (i = 0; i < count && done < len; i++) {
		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		n = iov[i].iov_len - offset;
		if (n > len - done)
			n = len - done;
		ivs_copy((char *) buf + done, (char *) iov[i].iov_base + offset, n);
		done += n;
		offset = 0;
	}
	return done;
}

size_t ivs_iov_scatter(const struct iovec *iov, size_t count, size_t offset,
		       const void *buf, size_t len)
{
	size_t done = 0, i, n;

	for (i = 0; i < count && done < len; i++) {
		if (offset >= iov[i].iov_len) {
			offset -= iov[i].iov_len;
			continue;
		}
		n = iov[i].iov_len - offset;
		if (n > len - done)
			n = len - done;
		ivs_copy((char *) iov[i].iov_base + offset, (const char *) buf + done, n);
		done += n;
		offset = 0;
	}
	return done;
}
