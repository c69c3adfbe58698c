/* Tables that grow by doubling. */
#ifndef IVS_TABLE_H
#define IVS_TABLE_H

#include <stddef.h>

/*
 * Makes a table of *size entries, each of this many bytes, long enough for entry at, and sets *size. New entries are zero.
 * Returns the table, which may have moved, or NULL if there is no memory: it stays as it was then.
 */
void *ivs_table_grow(void *table, size_t *size, size_t at, size_t bytes);

#endif /* IVS_TABLE_H */
