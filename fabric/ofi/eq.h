/* Event queues. */
#ifndef IVS_EQ_H
#define IVS_EQ_H

#include <rdma/fi_eq.h>

int ivs_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
int ivs_eq_trywait(struct fid *fid);

#endif /* IVS_EQ_H */
