/* Describes the provider's features, and compares them with an application's hints. */
#include <malloc.h>
#include <stdio.h>

#include "base/addr.h"
#include "base/lib.h"
#include "base/limits.h"
#include "base/param.h"
#include "ofi/open.h"
#include "region/region.h"
#include "region/siphash.h"
#include "remote/core.h"

#define TX_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS \
	(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | \
	 FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT)
#define DOMAIN_CAPS    (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define PRIMARY_CAPS   (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)
#define RMA_DIRECTIONS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define MSG_DIRECTIONS (FI_SEND | FI_RECV)
#define ALL_CAPS       (TX_CAPS | RX_CAPS | DOMAIN_CAPS)

#define ORDER (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define TX_OP_FLAGS \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | \
	 FI_MATCH_COMPLETE)
#define RX_OP_FLAGS (FI_COMPLETION | FI_MULTI_RECV)

#define MODES_IGNORED (~0ULL) /* modes that an application offers to support: none is needed */

void ivs_name_addr(struct ivs_addr *addr, const char *service)
{
	memset(addr, 0, sizeof(*addr));
	addr->kind = IVS_ADDR_NAME;
	addr->id = ivs_name_hash(service);
}

/* Sets fields of struct fi_domain_attr that are newer than the headers of this build. */
static void newer_domain_attr(struct fi_domain_attr *d)
{
	struct later {
		size_t max_ep_auth_key;
		uint32_t max_group_id;
		uint64_t max_cntr_value;
		uint64_t max_err_cntr_value;
	} *l = (struct later *) (void *) ((char *) d + 192);

	_Static_assert(offsetof(struct fi_domain_attr, tclass) < 192, "grown since");
	/* The version does not show it: Intel's 2.4 does not have them, and the next heap block follows. */
	if (malloc_usable_size(d) < 192 + sizeof(*l))
		return;
	l->max_cntr_value = UINT64_MAX;
	l->max_err_cntr_value = UINT64_MAX;
}

static struct fi_info *all_we_have(void)
{
	/* The library's own size of the structures, all zeros. */
	struct fi_info *info = ivs_lib.dupinfo(NULL);

	if (!info)
		return NULL;
	info->caps = ALL_CAPS;
	info->addr_format = IVS_ADDR_FORMAT;
	info->tx_attr->caps = TX_CAPS;
	info->tx_attr->msg_order = ORDER;
	info->tx_attr->inject_size = IVS_INJECT_MAX;
	info->tx_attr->size = IVS_TX_SIZE;
	info->tx_attr->iov_limit = IVS_IOV_MAX;
	info->tx_attr->rma_iov_limit = IVS_IOV_MAX;
	info->rx_attr->caps = RX_CAPS;
	info->rx_attr->msg_order = ORDER;
	info->rx_attr->size = IVS_RX_SIZE;
	info->rx_attr->iov_limit = IVS_IOV_MAX;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol = 1U << 31 | 0x6e6d;
	info->ep_attr->protocol_version = NM_LAYOUT_VERSION;
	info->ep_attr->max_msg_size = IVS_MSG_MAX;
	info->ep_attr->max_order_raw_size = IVS_ATOMIC_MAX;
	info->ep_attr->max_order_war_size = IVS_ATOMIC_MAX;
	info->ep_attr->max_order_waw_size = IVS_ATOMIC_MAX;
	info->ep_attr->mem_tag_format = UINT64_MAX;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
	info->domain_attr->name = strdup(IVS_NAME);
	info->domain_attr->threading = FI_THREAD_SAFE;
	info->domain_attr->control_progress = FI_PROGRESS_AUTO;
	info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	info->domain_attr->resource_mgmt = FI_RM_ENABLED;
	info->domain_attr->av_type = FI_AV_UNSPEC;
	info->domain_attr->mr_mode = 0;
	info->domain_attr->mr_key_size = sizeof(uint64_t);
	info->domain_attr->cq_data_size = sizeof(uint64_t);
	info->domain_attr->cq_cnt = 1024;
	info->domain_attr->ep_cnt = NM_LAYOUT_MAX_SLOTS;
	info->domain_attr->tx_ctx_cnt = NM_LAYOUT_MAX_SLOTS;
	info->domain_attr->rx_ctx_cnt = NM_LAYOUT_MAX_SLOTS;
	info->domain_attr->max_ep_tx_ctx = 1;
	info->domain_attr->max_ep_rx_ctx = 1;
	info->domain_attr->cntr_cnt = 1024;
	info->domain_attr->mr_iov_limit = IVS_IOV_MAX;
	info->domain_attr->caps = DOMAIN_CAPS;
	info->domain_attr->mr_cnt = 65536;
	newer_domain_attr(info->domain_attr);
	info->fabric_attr->name = strdup(IVS_NAME);
	info->fabric_attr->prov_version = IVS_VERSION;
	if (!info->domain_attr->name || !info->fabric_attr->name) {
		ivs_lib.freeinfo(info);
		return NULL;
	}
	return info;
}

#define REFUSE(...) \
	do { \
		IVS_INFO(FI_LOG_CORE, __VA_ARGS__); \
		return -FI_ENODATA; \
	} while (0)

static int check_domain(const struct fi_domain_attr *h, const struct fi_domain_attr *o, uint32_t version)
{
	int mode = h->mr_mode;

	if (h->name && strcmp(h->name, o->name))
		REFUSE("there is no domain %s\n", h->name);
	if (h->data_progress == FI_PROGRESS_AUTO)
		REFUSE("progress is manual\n");
	if (h->resource_mgmt > FI_RM_ENABLED || h->av_type > FI_AV_TABLE)
		REFUSE("unknown resource management or AV type\n");
	if (h->mr_key_size > o->mr_key_size || h->cq_data_size > o->cq_data_size || h->max_ep_tx_ctx > 1 ||
	    h->max_ep_rx_ctx > 1 || h->max_ep_stx_ctx || h->max_ep_srx_ctx || h->ep_cnt > o->ep_cnt ||
	    h->cq_cnt > o->cq_cnt || h->cntr_cnt > o->cntr_cnt || h->mr_iov_limit > o->mr_iov_limit)
		REFUSE("a limit of the domain is asked for that we do not have\n");
	if (h->caps & ~(uint64_t) DOMAIN_CAPS)
		REFUSE("domain capabilities %#jx are not offered\n", (uintmax_t) h->caps);
	if (h->auth_key_size)
		REFUSE("no authorization keys\n");
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)) && mode && mode & ~(IVS_MR_BASIC | IVS_MR_SCALABLE))
		REFUSE("memory registration mode %#x before 1.5\n", (unsigned int) mode);
	if (mode & (IVS_MR_BASIC | IVS_MR_SCALABLE) && mode & ~(IVS_MR_BASIC | IVS_MR_SCALABLE))
		REFUSE("mixed memory registration modes\n");
	return 0;
}

static int check_hints(uint32_t version, const struct fi_info *h, const struct fi_info *o)
{
	int ret;

	if (h->caps & ~(uint64_t) ALL_CAPS)
		REFUSE("capabilities %#jx are not offered\n", (uintmax_t) (h->caps & ~(uint64_t) ALL_CAPS));
	if (h->addr_format && h->addr_format != IVS_ADDR_FORMAT)
		REFUSE("another address format\n");
	if (h->handle)
		REFUSE("no connections\n");
	if (h->fabric_attr) {
		if (h->fabric_attr->name && strcmp(h->fabric_attr->name, IVS_NAME))
			REFUSE("there is no fabric %s\n", h->fabric_attr->name);
		if (h->fabric_attr->prov_version && h->fabric_attr->prov_version > IVS_VERSION)
			REFUSE("version %#x is asked for\n", h->fabric_attr->prov_version);
	}
	if (h->ep_attr) {
		const struct fi_ep_attr *e = h->ep_attr;

		if (e->type != FI_EP_UNSPEC && e->type != FI_EP_RDM)
			REFUSE("only endpoints of type RDM\n");
		if (e->protocol && e->protocol != o->ep_attr->protocol)
			REFUSE("another protocol\n");
		if (e->max_msg_size > IVS_MSG_MAX || e->tx_ctx_cnt > 1 || e->rx_ctx_cnt > 1 ||
		    e->max_order_raw_size > o->ep_attr->max_order_raw_size ||
		    e->max_order_war_size > o->ep_attr->max_order_war_size ||
		    e->max_order_waw_size > o->ep_attr->max_order_waw_size || e->auth_key_size)
			REFUSE("a limit of the endpoint is asked for that we do not have\n");
	}
	if (h->tx_attr) {
		const struct fi_tx_attr *t = h->tx_attr;

		if (t->caps & ~(uint64_t) (TX_CAPS | DOMAIN_CAPS) || t->op_flags & ~(uint64_t) TX_OP_FLAGS ||
		    t->msg_order & ~(uint64_t) ORDER || t->inject_size > IVS_INJECT_MAX || t->size > 65536 ||
		    t->iov_limit > IVS_IOV_MAX || t->rma_iov_limit > IVS_IOV_MAX ||
		    t->comp_order & ~(uint64_t) IVS_ORDER_DATA)
			REFUSE("transmit attributes that are not offered\n");
		if (h->caps && t->caps & ~(h->caps | MSG_DIRECTIONS | RMA_DIRECTIONS))
			REFUSE("transmit capabilities beyond the general ones\n");
	}
	if (h->rx_attr) {
		const struct fi_rx_attr *r = h->rx_attr;

		if (r->caps & ~(uint64_t) (RX_CAPS | DOMAIN_CAPS) || r->op_flags & ~(uint64_t) RX_OP_FLAGS ||
		    r->msg_order & ~(uint64_t) ORDER || r->size > 1U << 20 || r->iov_limit > IVS_IOV_MAX ||
		    r->comp_order & ~(uint64_t) IVS_ORDER_DATA)
			REFUSE("receive attributes that are not offered\n");
		if (h->caps && r->caps & ~(h->caps | MSG_DIRECTIONS | RMA_DIRECTIONS))
			REFUSE("receive capabilities beyond the general ones\n");
	}
	if (h->domain_attr) {
		ret = check_domain(h->domain_attr, o->domain_attr, version);
		if (ret)
			return ret;
	}
	return 0;
}

/* Adds the directions that primary capabilities imply when none is named. */
static uint64_t imply(uint64_t caps)
{
	if (caps & (FI_MSG | FI_TAGGED) && !(caps & MSG_DIRECTIONS))
		caps |= MSG_DIRECTIONS;
	if (caps & (FI_RMA | FI_ATOMIC) && !(caps & RMA_DIRECTIONS))
		caps |= RMA_DIRECTIONS;
	if (!(caps & DOMAIN_CAPS))
		caps |= DOMAIN_CAPS;
	return caps;
}

static void apply_hints(uint32_t version, const struct fi_info *h, struct fi_info *info)
{
	struct fi_domain_attr *d = info->domain_attr;
	uint64_t caps = h->caps;

	if (h->tx_attr)
		caps |= h->tx_attr->caps;
	if (h->rx_attr)
		caps |= h->rx_attr->caps;
	if (h->caps & PRIMARY_CAPS || caps)
		info->caps = imply(caps);
	info->tx_attr->caps = info->caps & TX_CAPS;
	info->rx_attr->caps = info->caps & RX_CAPS;
	if (h->tx_attr) {
		if (h->tx_attr->caps)
			info->tx_attr->caps = imply(h->tx_attr->caps) & TX_CAPS;
		info->tx_attr->op_flags = h->tx_attr->op_flags;
		if (h->tx_attr->size)
			info->tx_attr->size = h->tx_attr->size;
		if (h->tx_attr->inject_size)
			info->tx_attr->inject_size = IVS_INJECT_MAX;
	}
	if (h->rx_attr) {
		if (h->rx_attr->caps)
			info->rx_attr->caps = imply(h->rx_attr->caps) & RX_CAPS;
		info->rx_attr->op_flags = h->rx_attr->op_flags;
		if (h->rx_attr->size)
			info->rx_attr->size = h->rx_attr->size;
	}
	if (h->domain_attr) {
		if (h->domain_attr->threading)
			d->threading = h->domain_attr->threading;
		if (h->domain_attr->av_type)
			d->av_type = h->domain_attr->av_type;
		if (h->domain_attr->resource_mgmt)
			d->resource_mgmt = h->domain_attr->resource_mgmt;
		if (h->domain_attr->control_progress)
			d->control_progress = h->domain_attr->control_progress;
		/* Only the oldest modes are ones that an application insists on. */
		if (h->domain_attr->mr_mode == IVS_MR_BASIC)
			d->mr_mode = IVS_MR_BASIC;
		else if (h->domain_attr->mr_mode & IVS_MR_SCALABLE)
			d->mr_mode = IVS_MR_SCALABLE;
	}
	/* Before 1.5 only these two existed: an unspecified mode becomes one of them. */
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)) && !d->mr_mode)
		d->mr_mode = IVS_MR_SCALABLE;
	info->mode = 0;
}

static int set_addr(void **at, size_t *len, const struct ivs_addr *addr)
{
	free(*at);
	*at = malloc(sizeof(*addr));
	if (!*at)
		return -FI_ENOMEM;
	memcpy(*at, addr, sizeof(*addr));
	*len = sizeof(*addr);
	return 0;
}

static int addresses(const char *node, const char *service, uint64_t flags, const struct fi_info *h,
		     struct fi_info *info)
{
	struct ivs_addr a;
	int ret = 0;

	if (flags & FI_NUMERICHOST && node && strspn(node, "0123456789abcdefABCDEF:.") != strlen(node))
		REFUSE("%s is not numeric\n", node);
	if (h && h->src_addr && h->src_addrlen == sizeof(a))
		ret = set_addr(&info->src_addr, &info->src_addrlen, h->src_addr);
	if (!ret && h && h->dest_addr && h->dest_addrlen == sizeof(a))
		ret = set_addr(&info->dest_addr, &info->dest_addrlen, h->dest_addr);
	if (!ret && !info->src_addr) {
		memset(&a, 0, sizeof(a));
		a.kind = IVS_ADDR_ANY;
		ret = set_addr(&info->src_addr, &info->src_addrlen, &a);
	}
	if (ret || (!node && !service))
		return ret;
	/* A service is a name within the region, regardless of the host. */
	ivs_name_addr(&a, service ? service : node);
	if (flags & FI_SOURCE)
		return service ? set_addr(&info->src_addr, &info->src_addrlen, &a) : 0;
	return set_addr(&info->dest_addr, &info->dest_addrlen, &a);
}

int ivs_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		struct fi_info **out)
{
	struct fi_info *info;
	int ret;

	/* Not available as a core provider of other providers, or of itself. */
	if (flags & IVS_CORE_ONLY && flags & IVS_HIDDEN)
		return -FI_ENODATA;
	if (!ivs_region_likely() && !ivs_core_wanted())
		REFUSE("there is no region and no way to make one\n");
	info = all_we_have();
	if (!info)
		return -FI_ENOMEM;
	/* FI_RMA_EVENT costs a message per direct write: only a caller that requests it gets it. */
	if (!hints || !hints->caps) {
		info->caps &= ~FI_RMA_EVENT;
		info->rx_attr->caps &= ~FI_RMA_EVENT;
	}
	ret = hints ? check_hints(version, hints, info) : 0;
	if (!ret && hints)
		apply_hints(version, hints, info);
	if (!ret && !(flags & FI_PROV_ATTR_ONLY))
		ret = addresses(node, service, flags, hints, info);
	if (ret) {
		ivs_lib.freeinfo(info);
		return ret;
	}
	info->fabric_attr->api_version = version;
	*out = info;
	return 0;
}
