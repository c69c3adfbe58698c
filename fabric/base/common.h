/* Helpers that every part uses. */
#ifndef IVS_COMMON_H
#define IVS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Asserts that a field is in this 64-byte line of its structure. */
#define IVS_IN_LINE(type, field, line) \
	_Static_assert(offsetof(type, field) / 64 == (line), #field " has left its cache line")

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Reference counts of objects, atomic because threads open and close objects at the same time. */
static inline void ivs_ref(int *refs)
{
	__atomic_add_fetch(refs, 1, __ATOMIC_ACQ_REL);
}

static inline void ivs_unref(int *refs)
{
	__atomic_sub_fetch(refs, 1, __ATOMIC_ACQ_REL);
}

static inline bool ivs_refs(const int *refs)
{
	return __atomic_load_n(refs, __ATOMIC_ACQUIRE) != 0;
}

#endif /* IVS_COMMON_H */
