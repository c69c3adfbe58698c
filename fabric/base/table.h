/* Tables that grow by doubling. */
#ifndef IVS_TABLE_H
#define IVS_TABLE_H

#include <stddef.h>

/*
 * Extends a table of *size entries, each of this many bytes, so that it has entry at, and updates *size. New entries
 * are zero. Returns the table, which may have moved, or NULL without memory: the table is then unchanged.
 */
void *ivs_table_grow(void *table, size_t *size, size_t at, size_t bytes);

#endif /* IVS_TABLE_H */
