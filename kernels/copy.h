/* Copying large blocks into and out of a region. */
#ifndef NM_COPY_H
#define NM_COPY_H

#include <stddef.h>

/*
 * Like memcpy(), with the widest available vector registers, and without the string instruction that glibc uses from
 * some KiB on. That instruction is slower between two processes and ten times slower when emulated.
 */
void copy_block(void *to, const void *from, size_t bytes);

#endif
