/*
 * The functions that libfabric calls to open objects, and those for unsupported calls. The tables of operations, and
 * the functions that close and control an object, are similar in the files of this directory: libfabric has one such
 * table for each class, and only the function of a class can find the object from its fid.
 */
#ifndef IVS_OPEN_H
#define IVS_OPEN_H

#include <stdbool.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

int ivs_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		struct fi_info **info);
int ivs_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int ivs_domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
int ivs_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **poll);
int ivs_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int ivs_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context);
int ivs_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
int ivs_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
int ivs_query_atomic(struct fid_domain *domain, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
		     uint64_t flags);

/* Implement ivs_quiet_fn (proto/sleep.h) for a queue, and for a counter since its last read. */
bool ivs_cq_quiet(void *cq, uint64_t *mark);
bool ivs_cntr_quiet(void *cntr, uint64_t *mark);

struct ivs_ep;
/* Shows all the domain's registered memory to the endpoint's peers. */
void ivs_mr_show_all(struct ivs_ep *ep);

/* Stand-ins for calls that an object does not support: they return -FI_ENOSYS. */
int ivs_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int ivs_no_control(struct fid *fid, int command, void *arg);
int ivs_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

/*
 * Returns libfabric's text for an error code of either sign, for fi_cq_strerror and fi_eq_strerror. If there is a
 * buffer, its first len - 1 bytes are copied there, with a NUL.
 */
const char *ivs_error_text(int prov_errno, char *buf, size_t len);

/* Operations in mr.c, msg.c, tagged.c, rma.c and atomic.c. */
extern struct fi_ops_mr ivs_mr_ops;
extern struct fi_ops_msg ivs_msg_ops;
extern struct fi_ops_tagged ivs_tagged_ops;
extern const struct fi_ops_tagged ivs_tagged_counted; /* for ivs_traffic_open() */
extern struct fi_ops_rma ivs_rma_ops;
extern struct fi_ops_atomic ivs_atomic_ops;

#endif /* IVS_OPEN_H */
