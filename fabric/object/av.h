/* Address vectors. */
#ifndef IVS_AV_H
#define IVS_AV_H

#include <rdma/fi_domain.h>

#include "base/addr.h"
#include "object/domain.h"

struct ivs_av {
	struct fid_av fid;
	struct ivs_domain *domain;
	enum fi_av_type type;
	int refs;
	struct ivs_addr *addr;
	bool *used;
	size_t count;	/* all used and freed entries are below this index */
	size_t removed; /* freed entries */
	size_t size;
	struct ivs_list eps; /* struct ivs_ep.av_link */
};

#endif /* IVS_AV_H */
