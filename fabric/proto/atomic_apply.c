/* Applies atomic operations to memory of this process, one element after the other. */
#include <complex.h>
#include <float.h>

#include "proto/proto.h"

typedef __int128 i128;
typedef unsigned __int128 u128;
typedef long double ldouble;
typedef float complex cfloat;
typedef double complex cdouble;
typedef long double complex cldouble;

/* clang-format would format these lists of macros as statements. */
/* clang-format off */

/* In the order of enum fi_datatype, which all versions share for these. */
#define INT_TYPES(X) \
	X(FI_INT8, int8_t) X(FI_UINT8, uint8_t) X(FI_INT16, int16_t) X(FI_UINT16, uint16_t) \
	X(FI_INT32, int32_t) X(FI_UINT32, uint32_t) X(FI_INT64, int64_t) X(FI_UINT64, uint64_t) \
	X(FI_INT128, i128) X(FI_UINT128, u128)
#define REAL_TYPES(X) X(FI_FLOAT, float) X(FI_DOUBLE, double) X(FI_LONG_DOUBLE, ldouble)
#define COMPLEX_TYPES(X) \
	X(FI_FLOAT_COMPLEX, cfloat) X(FI_DOUBLE_COMPLEX, cdouble) \
	X(FI_LONG_DOUBLE_COMPLEX, cldouble)

size_t ivs_type_bytes(uint8_t type)
{
#define SIZE(name, ctype) case name: return sizeof(ctype);
	switch (type) {
	INT_TYPES(SIZE)
	REAL_TYPES(SIZE)
	COMPLEX_TYPES(SIZE)
	default:
		return 0;
	}
#undef SIZE
}

static bool is_complex(uint8_t type)
{
	return type == FI_FLOAT_COMPLEX || type == FI_DOUBLE_COMPLEX ||
	       type == FI_LONG_DOUBLE_COMPLEX;
}

static bool is_real(uint8_t type)
{
	return type == FI_FLOAT || type == FI_DOUBLE || type == FI_LONG_DOUBLE;
}

bool ivs_atomic_valid(uint8_t type, uint8_t op, uint8_t kind)
{
	if (!ivs_type_bytes(type))
		return false;
	if (op >= FI_CSWAP && op <= FI_MSWAP) {
		if (kind != IVS_ATOMIC_COMPARE)
			return false;
	} else if (kind == IVS_ATOMIC_COMPARE) {
		return false;
	}
	switch (op) {
	case FI_MIN:
	case FI_MAX:
		return !is_complex(type);
	case FI_SUM:
	case FI_PROD:
	case FI_LOR:
	case FI_LAND:
	case FI_LXOR:
	case FI_ATOMIC_WRITE:
	case FI_CSWAP:
	case FI_CSWAP_NE:
		return true;
	case FI_ATOMIC_READ:
		return kind == IVS_ATOMIC_FETCH;
	case FI_BOR:
	case FI_BAND:
	case FI_BXOR:
	case FI_MSWAP:
		return !is_complex(type) && !is_real(type);
	case FI_CSWAP_LE:
	case FI_CSWAP_LT:
	case FI_CSWAP_GE:
	case FI_CSWAP_GT:
		return !is_complex(type);
	default:
		return false;
	}
}

/* Writes a value without the padding bytes of a long double, which would expose bytes of the stack. */
#define PUT(to, value) \
	put(to, &(value), sizeof(value), \
	    _Generic(value, ldouble: true, cldouble: true, default: false))

static inline void put(void *to, const void *value, size_t bytes, bool padded)
{
	size_t used = LDBL_MANT_DIG == 64 ? 10 : sizeof(ldouble), at;

	if (!padded) {
		memcpy(to, value, bytes);
		return;
	}
	for (at = 0; at < bytes; at += sizeof(ldouble))
		memcpy((char *) to + at, (const char *) value + at, used);
}

#define EACH(expr) \
	for (i = 0; i < n; i++) { \
		memcpy(&d, (char *) dst + i * sizeof(d), sizeof(d)); \
		memcpy(&s, (const char *) src + i * sizeof(s), sizeof(s)); \
		if (result) \
			PUT((char *) result + i * sizeof(d), d); \
		d = (expr); \
		PUT((char *) dst + i * sizeof(d), d); \
	} \
	return 0

#define EACH_IF(cond, expr) \
	for (i = 0; i < n; i++) { \
		memcpy(&d, (char *) dst + i * sizeof(d), sizeof(d)); \
		memcpy(&s, (const char *) src + i * sizeof(s), sizeof(s)); \
		memcpy(&c, (const char *) cmp + i * sizeof(c), sizeof(c)); \
		if (result) \
			PUT((char *) result + i * sizeof(d), d); \
		if (cond) { \
			d = (expr); \
			PUT((char *) dst + i * sizeof(d), d); \
		} \
	} \
	return 0

#define ANY_OPS(name) \
	case FI_SUM: EACH(d + s); \
	case FI_PROD: EACH(d * s); \
	case FI_LOR: EACH(d != 0 || s != 0); \
	case FI_LAND: EACH(d != 0 && s != 0); \
	case FI_LXOR: EACH((d != 0) != (s != 0)); \
	case FI_ATOMIC_WRITE: EACH(s); \
	case FI_CSWAP: EACH_IF(c == d, s); \
	case FI_CSWAP_NE: EACH_IF(c != d, s);

#define ORDER_OPS(name) \
	case FI_MIN: EACH(s < d ? s : d); \
	case FI_MAX: EACH(s > d ? s : d); \
	case FI_CSWAP_LE: EACH_IF(c <= d, s); \
	case FI_CSWAP_LT: EACH_IF(c < d, s); \
	case FI_CSWAP_GE: EACH_IF(c >= d, s); \
	case FI_CSWAP_GT: EACH_IF(c > d, s);

#define BIT_OPS(name) \
	case FI_BOR: EACH(d | s); \
	case FI_BAND: EACH(d & s); \
	case FI_BXOR: EACH(d ^ s); \
	case FI_MSWAP: EACH_IF(true, (s & c) | (d & ~c));

#define FUNC(name, ctype, ops) \
static int apply_##name(uint8_t op, void *dst, const void *src, const void *cmp, \
			void *result, size_t n) \
{ \
	ctype d, s, c; \
	size_t i; \
\
	switch (op) { \
	ops \
	default: \
		return -FI_EOPNOTSUPP; \
	} \
}

#define INT_FUNC(name, ctype) FUNC(name, ctype, ANY_OPS(x) ORDER_OPS(x) BIT_OPS(x))
#define REAL_FUNC(name, ctype) FUNC(name, ctype, ANY_OPS(x) ORDER_OPS(x))
#define COMPLEX_FUNC(name, ctype) FUNC(name, ctype, ANY_OPS(x))

INT_TYPES(INT_FUNC)
REAL_TYPES(REAL_FUNC)
COMPLEX_TYPES(COMPLEX_FUNC)

int ivs_atomic_apply(uint8_t type, uint8_t op, uint8_t kind, void *target,
		     const void *operand, const void *compare, void *result, size_t count)
{
	if (op == FI_ATOMIC_READ) {
		if (result)
			memcpy(result, target, count * ivs_type_bytes(type));
		return 0;
	}
	if (kind == IVS_ATOMIC_WRITE)
		result = NULL;
#define CALL(name, ctype) \
	case name: return apply_##name(op, target, operand, compare, result, count);
	switch (type) {
	INT_TYPES(CALL)
	REAL_TYPES(CALL)
	COMPLEX_TYPES(CALL)
	default:
		return -FI_EOPNOTSUPP;
	}
#undef CALL
}

/* clang-format on */
