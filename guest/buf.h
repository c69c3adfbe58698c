/* A growing byte buffer that is filled at its end and drained at its start. */
#ifndef NM_BUF_H
#define NM_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *p;
	size_t off, len, cap; /* the bytes are p[off .. off+len) */
};

/* Makes room for n more bytes and returns the address to write them to; aborts without memory. */
uint8_t *buf_reserve(struct buf *b, size_t n);
/* Counts n bytes that were written to the address that buf_reserve returned. */
void buf_added(struct buf *b, size_t n);
void buf_append(struct buf *b, const void *p, size_t n);
/* Drops n bytes at the start. An empty buffer frees its memory if it had grown large. */
void buf_drop(struct buf *b, size_t n);
void buf_free(struct buf *b);
static inline uint8_t *buf_head(const struct buf *b)
{
	return b->p + b->off;
}

/* malloc and strdup that abort, because an agent without memory is useless. */
void *must_alloc(size_t n);
char *must_dup(const char *s);

#endif
