/* Fabrics and domains. */
#ifndef IVS_DOMAIN_H
#define IVS_DOMAIN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/fi_domain.h>

#include "base/common.h"
#include "base/layout.h"
#include "base/list.h"

struct ivs_core;
struct ivs_mr;
struct ivs_region;

struct ivs_fabric {
	struct fid_fabric fid;
	int refs;
};

struct ivs_domain {
	struct fid_domain fid;
	struct ivs_fabric *fabric;
	struct ivs_region *region; /* NULL: none on this host */
	struct ivs_core *core;	   /* NULL: only this host can be reached */
	pthread_mutex_t lock;
	bool locking; /* FI_THREAD_SAFE and similar */
	uint64_t caps;
	int mr_mode;
	int refs;
	struct ivs_list eps; /* struct ivs_ep.domain_link */
	struct ivs_mr *mr_shown[NM_LAYOUT_MR_COUNT];
	struct ivs_mr **mr_hash;
	size_t mr_count;
	uint64_t mr_next;  /* next key of FI_MR_PROV_KEY */
	pid_t pid;	   /* process that opened the domain */
	int wake;	   /* an epoll of everything that can wake this process, -1: nobody has waited */
	uint32_t sleepers; /* sleeping threads; if there are any, senders must set their activity byte */
	/* Called under the lock before mr is closed; NULL while no endpoint was opened. */
	void (*mr_closed)(struct ivs_domain *domain, const struct ivs_mr *mr);
};

static inline void ivs_lock(struct ivs_domain *d)
{
	if (d->locking)
		pthread_mutex_lock(&d->lock);
}

static inline void ivs_unlock(struct ivs_domain *d)
{
	if (d->locking)
		pthread_mutex_unlock(&d->lock);
}

#endif /* IVS_DOMAIN_H */
