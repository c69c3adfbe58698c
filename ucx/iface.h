/* Interfaces. */
#ifndef IVU_IFACE_H
#define IVU_IFACE_H

#include "abi/ops.h"

/* Sets the transport's functions: its interfaces and all that follows from them. */
void ivu_iface_transport(struct ivu_transport *t);

#endif /* IVU_IFACE_H */
