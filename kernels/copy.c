#include "copy.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static void copy_avx2(unsigned char *to, const unsigned char *from, size_t bytes)
{
	size_t i = 0;

	for (; i + 128 <= bytes; i += 128) {
		__m256i a = _mm256_loadu_si256((const __m256i *) (from + i));
		__m256i b = _mm256_loadu_si256((const __m256i *) (from + i + 32));
		__m256i c = _mm256_loadu_si256((const __m256i *) (from + i + 64));
		__m256i d = _mm256_loadu_si256((const __m256i *) (from + i + 96));

		_mm256_storeu_si256((__m256i *) (to + i), a);
		_mm256_storeu_si256((__m256i *) (to + i + 32), b);
		_mm256_storeu_si256((__m256i *) (to + i + 64), c);
		_mm256_storeu_si256((__m256i *) (to + i + 96), d);
	}
	if (i < bytes)
		memcpy(to + i, from + i, bytes - i);
}

void copy_block(void *to, const void *from, size_t bytes)
{
	static int avx2 = -1;

	if (avx2 < 0)
		avx2 = __builtin_cpu_supports("avx2") != 0;
	if (avx2 && bytes >= 1024)
		copy_avx2(to, from, bytes);
	else
		memcpy(to, from, bytes);
}
#else
void copy_block(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}
#endif
