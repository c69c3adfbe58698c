#include "buf.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP = 256 * 1024 }; /* bytes that an empty buffer may keep allocated */

void *must_alloc(size_t n)
{
	void *p = calloc(1, n);

	if (!p)
		die("out of memory");
	return p;
}

char *must_dup(const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(must_alloc(n), s, n);
}

uint8_t *buf_reserve(struct buf *b, size_t n)
{
	if (b->off + b->len + n > b->cap) {
		if (b->off && b->len + n <= b->cap && b->len <= b->cap / 2) {
			memmove(b->p, b->p + b->off, b->len);
		} else {
			size_t cap = (b->len + n) * 3 / 2;
			uint8_t *p = malloc(cap);

			if (!p)
				die("out of memory");
			if (b->len)
				memcpy(p, b->p + b->off, b->len);
			free(b->p);
			b->p = p;
			b->cap = cap;
		}
		b->off = 0;
	}
	return b->p + b->off + b->len;
}

void buf_added(struct buf *b, size_t n)
{
	b->len += n;
}

void buf_append(struct buf *b, const void *p, size_t n)
{
	if (!n)
		return;
	memcpy(buf_reserve(b, n), p, n);
	b->len += n;
}

void buf_drop(struct buf *b, size_t n)
{
	b->off += n;
	b->len -= n;
	if (b->len)
		return;
	b->off = 0;
	if (b->cap > KEEP)
		buf_free(b);
}

void buf_free(struct buf *b)
{
	free(b->p);
	*b = (struct buf) { 0 };
}
