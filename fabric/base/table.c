#include <stdlib.h>
#include <string.h>

#include "base/table.h"

/* Not inline: tables seldom grow, and the callers are short. */
__attribute__((noinline)) void *ivs_table_grow(void *table, size_t *size, size_t at, size_t bytes)
{
	size_t grown = *size ? *size : 64;

	if (at < *size)
		return table;
	while (grown <= at)
		grown *= 2;
	table = realloc(table, grown * bytes);
	if (!table)
		return NULL;
	memset((char *) table + *size * bytes, 0, (grown - *size) * bytes);
	*size = grown;
	return table;
}
