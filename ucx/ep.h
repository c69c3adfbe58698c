/* Endpoints. */
#ifndef IVU_EP_H
#define IVU_EP_H

#include "object.h"

/* Sets the functions of endpoints. */
void ivu_ep_ops(struct ivu_iface_ops *ops);

#endif /* IVU_EP_H */
