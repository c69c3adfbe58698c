/* Memory of the region for the programs: a transport of its own. */
#ifndef IVU_WINDOW_H
#define IVU_WINDOW_H

#include "abi/ops.h"

/* Returns whether this process's UCX can use it. Some versions do not use such memory. */
bool ivu_window_usable(void);
/* Sets the transport's functions, and those of its memory domain. */
void ivu_window_transport(struct ivu_transport *t);

#endif /* IVU_WINDOW_H */
