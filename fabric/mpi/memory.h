/* Memory of the region for programs. */
#ifndef IVM_MEMORY_H
#define IVM_MEMORY_H

#include "abi.h"

/* Allocates bytes in the region. Returns NULL without a provider, a region or enough room. */
void *ivm_alloc(ivm_aint bytes);
/* Frees memory of ivm_alloc(). Returns false if it is not from there. */
bool ivm_free(void *memory);

#endif /* IVM_MEMORY_H */
