#include <stdbool.h>

#include "ring/copy.h"
#include "tune.h"

static void copy_libc(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

void (*ivs_copy_large)(void *dst, const void *src, size_t len) = copy_libc;
void (*ivs_copy_put)(void *dst, const void *src, size_t len) = copy_libc;
void (*ivs_copy_nt)(void *dst, const void *src, size_t len);

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* Copies with vectors. The last piece may overlap the one before. */
__attribute__((target("avx"))) static void copy_avx(void *dst, const void *src, size_t len)
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
	_mm256_storeu_si256((void *) (dend + 32), _mm256_loadu_si256((const void *) (end + 32)));
	_mm256_storeu_si256((void *) (dend + 64), _mm256_loadu_si256((const void *) (end + 64)));
	_mm256_storeu_si256((void *) (dend + 96), _mm256_loadu_si256((const void *) (end + 96)));
	_mm256_zeroupper();
}

/*
 * Copies with `rep movsb`, which does not read what it overwrites: faster where the destination is in another core's
 * cache, or in none.
 */
static void string(void *dst, const void *src, size_t len)
{
	char *d = dst;
	const char *s = src;
	size_t head = -(uintptr_t) d & 63;

	if (head) {
		ivs_copy_small(d, s, head);
		d += head;
		s += head;
		len -= head;
	}
	__asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(len) : : "memory");
}

static void copy_string(void *dst, const void *src, size_t len)
{
	if (len < IVS_STRING_MIN)
		copy_avx(dst, src, len);
	else
		string(dst, src, len);
}

/* Like copy_string for AMD CPUs, whose `rep movsb` starts faster. */
static void copy_string_amd(void *dst, const void *src, size_t len)
{
	if (len < IVS_STRING_MIN_AMD)
		copy_avx(dst, src, len);
	else
		string(dst, src, len);
}

/*
 * Writes a bounce buffer. Of several short copies with some work in between, a core overlaps less than of one long
 * copy, because the work's stores wait in the same store buffer. Therefore all lines are requested beforehand.
 */
static void put_string(void *dst, const void *src, size_t len)
{
	size_t i;

	if (len >= IVS_PUT_MIN) {
		string(dst, src, len);
		return;
	}
	for (i = 0; i < len && i < IVS_OWN_MAX; i += 64)
		ivs_prefetch_own((char *) dst + i);
	memcpy(dst, src, len);
}

/* Like put_string for AMD CPUs, where fetching a line for writing does not help, and vectors start faster. */
static void put_string_amd(void *dst, const void *src, size_t len)
{
	if (len < IVS_PUT_MIN_AMD)
		copy_avx(dst, src, len);
	else
		string(dst, src, len);
}

/* Like copy_avx, but writes lines to memory at once, without fetching them first. */
__attribute__((target("avx"))) static void copy_nt(void *dst, const void *src, size_t len)
{
	size_t head = -(uintptr_t) dst & 31;
	char *d = dst;
	const char *s = src;

	ivs_copy_small(d, s, head < len ? head : len);
	if (head >= len)
		return;
	for (d += head, s += head, len -= head; len >= 128; d += 128, s += 128, len -= 128) {
		__m256i a = _mm256_loadu_si256((const void *) s);
		__m256i b = _mm256_loadu_si256((const void *) (s + 32));
		__m256i c = _mm256_loadu_si256((const void *) (s + 64));
		__m256i e = _mm256_loadu_si256((const void *) (s + 96));

		_mm256_stream_si256((void *) d, a);
		_mm256_stream_si256((void *) (d + 32), b);
		_mm256_stream_si256((void *) (d + 64), c);
		_mm256_stream_si256((void *) (d + 96), e);
	}
	_mm256_zeroupper();
	ivs_copy_small(d, s, len);
	/* Without the fence they are not ordered with the word that announces them. */
	_mm_sfence();
}

/* Returns true if QEMU emulates this CPU's instructions (TCG), where string instructions are slow. */
static bool emulated(void)
{
	unsigned int a, b, c, d;

	__cpuid(1, a, b, c, d);
	if (!(c & 1U << 31))
		return false;
	__cpuid(0x40000000, a, b, c, d);
	return b == 0x54474354 && c == 0x43544743 && d == 0x47435447; /* TCGTCGTCGTCG */
}

static bool amd(void)
{
	unsigned int max, maker[3];

	__cpuid(0, max, maker[0], maker[2], maker[1]);
	return !memcmp(maker, "AuthenticAMD", sizeof(maker)) || !memcmp(maker, "HygonGenuine", sizeof(maker));
}

/*
 * Returns true for AMD CPUs before Zen 5 (seen on Zen 3, reported of Zen 4: glibc bug 30994). Their string instructions
 * need thirty times as long if the destination is 1 to 31 bytes after the source, except for whole pages: this is the
 * case between a bounce buffer and a large buffer of malloc. Elsewhere they are no faster than vectors on these CPUs.
 */
static bool slow_string(void)
{
	unsigned int a, b, c, d, family;

	__cpuid(1, a, b, c, d);
	family = (a >> 8 & 15) + (a >> 20 & 255);
	return amd() && family < IVS_STRING_AMD_FAMILY;
}

static bool fast_string(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & 1U << 9 && !emulated() && !slow_string();
}
#endif

void ivs_copy_init(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx"))
		return;
	ivs_copy_large = ivs_copy_put = copy_avx;
	if (fast_string()) {
		ivs_copy_large = copy_string;
		ivs_copy_put = put_string;
		if (amd()) {
			ivs_copy_large = copy_string_amd;
			ivs_copy_put = put_string_amd;
		}
	}
	if (!emulated())
		ivs_copy_nt = copy_nt;
#endif
}

size_t ivs_iov_gather(void *buf, size_t len, const struct iovec *iov, size_t count, size_t offset)
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

size_t ivs_iov_scatter(const struct iovec *iov, size_t count, size_t offset, const void *buf, size_t len)
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
