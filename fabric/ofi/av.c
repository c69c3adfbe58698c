/* Address vectors. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

#include "object/av.h"
#include "ofi/open.h"
#include "proto/peer.h"

static bool valid(const struct ivs_addr *a)
{
	return (a->kind == IVS_ADDR_SLOT || a->kind == IVS_ADDR_NAME ||
		((a->kind == IVS_ADDR_CORE || a->kind == IVS_ADDR_TAGGED) && a->core_len)) &&
	       a->core_len <= sizeof(a->core) && a->slot < NM_LAYOUT_MAX_SLOTS;
}

static int64_t add_one(struct ivs_av *av, const struct ivs_addr *addr)
{
	struct ivs_list *pos;
	size_t i;

	/* Reuse the index of a removed address. */
	for (i = 0; i < av->count && av->removed; i++)
		if (!av->used[i])
			break;
	if (!av->removed)
		i = av->count;
	if (i == av->size) {
		size_t size = av->size ? 2 * av->size : 64;
		struct ivs_addr *a = realloc(av->addr, size * sizeof(*a));
		bool *u;

		if (!a)
			return -FI_ENOMEM;
		av->addr = a;
		u = realloc(av->used, size * sizeof(*u));
		if (!u)
			return -FI_ENOMEM;
		memset(u + av->size, 0, (size - av->size) * sizeof(*u));
		av->used = u;
		av->size = size;
	}
	if (i == av->count)
		av->count++;
	else
		av->removed--;
	av->addr[i] = *addr;
	av->used[i] = true;
	ivs_list_each(pos, &av->eps)
		ivs_peer_inserted(ivs_entry(pos, struct ivs_ep, av_link), i);
	return (int64_t) i;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
		     void *context)
{
	struct ivs_av *av = ivs_entry(fid, struct ivs_av, fid);
	struct ivs_addr a;
	int *errors = NULL, done = 0;
	int64_t ret;
	size_t i;

	if (flags & ~(uint64_t) (FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID))
		return -FI_EBADFLAGS;
	if (flags & FI_AV_USER_ID)
		return -FI_ENOSYS;
	if (flags & FI_SYNC_ERR)
		errors = context;
	ivs_lock(av->domain);
	for (i = 0; i < count; i++) {
		memcpy(&a, (const char *) addr + i * sizeof(a), sizeof(a));
		ret = valid(&a) ? add_one(av, &a) : -FI_EADDRNOTAVAIL;
		if (errors)
			errors[i] = ret < 0 ? (int) -ret : 0;
		if (fi_addr)
			fi_addr[i] = ret < 0 ? FI_ADDR_NOTAVAIL : (fi_addr_t) ret;
		if (ret >= 0)
			done++;
	}
	ivs_unlock(av->domain);
	return done;
}

static int av_insertsvc(struct fid_av *fid, const char *node, const char *service, fi_addr_t *fi_addr, uint64_t flags,
			void *context)
{
	struct ivs_addr a;

	(void) node;
	if (!service)
		return -FI_EINVAL;
	ivs_name_addr(&a, service);
	return av_insert(fid, &a, 1, fi_addr, flags, context);
}

static int av_insertsym(struct fid_av *fid, const char *node, size_t nodes, const char *service, size_t services,
			fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	char name[32];
	size_t i;
	long first;
	int n, done = 0;

	if (!node || !service || !nodes)
		return -FI_EINVAL;
	first = strtol(service, NULL, 10);
	/* Names do not distinguish hosts: there is only one range of services. */
	for (i = 0; i < services; i++) {
		snprintf(name, sizeof(name), "%ld", first + (long) i);
		n = av_insertsvc(fid, node, name, fi_addr ? fi_addr + i : NULL, flags, context);
		if (n < 0)
			return n;
		done += n;
	}
	return done;
}

static int av_remove(struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
	struct ivs_av *av = ivs_entry(fid, struct ivs_av, fid);
	struct ivs_list *pos;
	int ret = 0;
	size_t i;

	if (flags)
		return -FI_EINVAL;
	ivs_lock(av->domain);
	for (i = 0; i < count; i++) {
		if (fi_addr[i] >= av->count || !av->used[fi_addr[i]]) {
			ret = -FI_EINVAL;
			continue;
		}
		av->used[fi_addr[i]] = false;
		av->removed++;
		ivs_list_each(pos, &av->eps)
			ivs_peer_removed(ivs_entry(pos, struct ivs_ep, av_link), fi_addr[i]);
	}
	ivs_unlock(av->domain);
	return ret;
}

static int av_lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *len)
{
	struct ivs_av *av = ivs_entry(fid, struct ivs_av, fid);
	size_t room = *len;
	int ret = 0;

	ivs_lock(av->domain);
	if (fi_addr >= av->count || !av->used[fi_addr]) {
		ret = -FI_EINVAL;
	} else {
		memcpy(addr, &av->addr[fi_addr], room < sizeof(struct ivs_addr) ? room : sizeof(struct ivs_addr));
		*len = sizeof(struct ivs_addr);
	}
	ivs_unlock(av->domain);
	return ret;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	struct ivs_addr a;
	int n;

	(void) fid;
	memcpy(&a, addr, sizeof(a));
	n = snprintf(buf, *len, "ivshmem://%016jx/%u.%u", (uintmax_t) a.id, a.slot, a.epoch);
	*len = (size_t) n + 1;
	return buf;
}

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

static int av_close(struct fid *fid)
{
	struct ivs_av *av = ivs_entry(fid, struct ivs_av, fid.fid);

	if (ivs_refs(&av->refs))
		return -FI_EBUSY;
	ivs_unref(&av->domain->refs);
	free(av->addr);
	free(av->used);
	free(av);
	return 0;
}

static struct fi_ops av_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = ivs_no_bind,
	.control = ivs_no_control,
	.ops_open = ivs_no_ops_open,
};

int ivs_av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	struct ivs_domain *domain = ivs_entry(fid, struct ivs_domain, fid);
	struct ivs_av *av;

	if (attr->name || attr->flags & ~(uint64_t) FI_SYMMETRIC || attr->rx_ctx_bits)
		return -FI_ENOSYS;
	av = calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	av->domain = domain;
	av->type = attr->type ? attr->type : FI_AV_TABLE;
	attr->type = av->type;
	ivs_list_init(&av->eps);
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fi_ops;
	av->fid.ops = &av_ops;
	ivs_ref(&domain->refs);
	*out = &av->fid;
	return 0;
}
