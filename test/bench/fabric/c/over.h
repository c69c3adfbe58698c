/* An endpoint with its queues. */
#ifndef OVER_H
#define OVER_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx_cq, *rx_cq;
	struct fid_ep *ep;
	size_t inject; /* bytes that go without a completion */
};

/* Opens a domain of provider, or the endpoint's objects in one that is open. */
void side_open(struct side *s, const char *provider, uint64_t caps);
void side_endpoint(struct side *s);
/* The endpoint's address, in 128 bytes of zeros. */
void side_name(struct side *s, uint8_t *addr);
fi_addr_t side_insert(struct side *s, const uint8_t *addr);
void side_close_endpoint(struct side *s);
void side_close(struct side *s);

void side_send(struct side *s, const void *buf, size_t len, fi_addr_t to);
void side_recv(struct side *s, void *buf, size_t len, fi_addr_t from);

#endif /* OVER_H */
