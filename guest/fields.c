#include "fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fields_valid(const char *p, size_t len)
{
	while (len) {
		const char *end = memchr(p, 0, len);
		const char *eq;

		if (!end)
			return false;
		eq = memchr(p, '=', end - p);
		if (!eq || eq == p)
			return false;
		len -= end + 1 - p;
		p = end + 1;
	}
	return true;
}

const char *fields_each(const struct fields *f, size_t *at)
{
	const char *s = f->p + *at;

	if (*at >= f->len)
		return NULL;
	*at += strlen(s) + 1;
	return s;
}

const char *fields_next(const struct fields *f, const char *key, size_t *at)
{
	size_t n = strlen(key);
	const char *s;

	while ((s = fields_each(f, at)))
		if (!strncmp(s, key, n) && s[n] == '=')
			return s + n + 1;
	return NULL;
}

const char *fields_get(const struct fields *f, const char *key)
{
	size_t at = 0;

	return fields_next(f, key, &at);
}

size_t fields_count(const struct fields *f, const char *key)
{
	size_t at = 0, n = 0;

	while (fields_next(f, key, &at))
		n++;
	return n;
}

void fields_add(struct buf *b, const char *key, const char *value)
{
	buf_append(b, key, strlen(key));
	buf_append(b, "=", 1);
	buf_append(b, value, strlen(value) + 1);
}

void fields_addf(struct buf *b, const char *key, const char *format, ...)
{
	char s[1024];
	va_list a;

	va_start(a, format);
	vsnprintf(s, sizeof(s), format, a);
	va_end(a);
	fields_add(b, key, s);
}

bool parse_number(const char *s, uint64_t most, uint64_t *n)
{
	uint64_t v = 0;

	if (!s || !*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (v > (UINT64_MAX - 9) / 10)
			return false;
		v = v * 10 + (*s - '0');
	}
	*n = v;
	return v <= most;
}
