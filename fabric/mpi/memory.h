/* Memory of the region for programs. */
#ifndef IVM_MEMORY_H
#define IVM_MEMORY_H

#include "abi.h"

/* bytes in the region, or NULL: no provider, no region, no room. */
void *ivm_alloc(ivm_aint bytes);
/* Frees what ivm_alloc() returned; false: memory is not of it. */
bool ivm_free(void *memory);

#endif /* IVM_MEMORY_H */
