/* Fields: `key=value` texts, each ended by a NUL, contiguous in memory. */
#ifndef NM_FIELDS_H
#define NM_FIELDS_H

#include "buf.h"

#include <stdbool.h>

struct fields {
	const char *p; /* not owned */
	size_t len;
};

/* Returns whether p is well formed: every field has a key, a '=', and an end. */
bool fields_valid(const char *p, size_t len);
/* Returns the first value of key at or after *at (0 to start), and sets *at past it; NULL if none. */
const char *fields_next(const struct fields *f, const char *key, size_t *at);
/* Returns the first value of key, or NULL. */
const char *fields_get(const struct fields *f, const char *key);
/* Returns the next field, with any key; NULL at the end. */
const char *fields_each(const struct fields *f, size_t *at);
/* Returns the number of values of key. */
size_t fields_count(const struct fields *f, const char *key);
void fields_add(struct buf *b, const char *key, const char *value);
void fields_addf(struct buf *b, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Parses a whole decimal number of at most `most`. */
bool parse_number(const char *s, uint64_t most, uint64_t *n);

#endif
