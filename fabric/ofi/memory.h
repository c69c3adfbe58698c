/* Memory in the region, for programs that allocate from it. */
#ifndef IVS_MEMORY_H
#define IVS_MEMORY_H

#include <rdma/fabric.h>

/* Implements fi_ops_open of a domain; offers NM_FABRIC_MEMORY of <nearmetal/fabric.h>. */
int ivs_memory_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif /* IVS_MEMORY_H */
