/* Copying large blocks into and out of a region. */
#ifndef NM_COPY_H
#define NM_COPY_H

#include <stddef.h>

/*
 * memcpy() with the widest vector registers that are there, without the string
 * instruction that glibc turns to at some KiB, which is slower between two processes and
 * ten times slower when emulated.
 */
void copy_block(void *to, const void *from, size_t bytes);

#endif
