#include <rdma/fi_endpoint.h>

#include "raw.h"

void raw_open(struct raw *r, const uint8_t *victim)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .size = 64 };
	struct fi_av_attr av = { 0 };
	const char *core = getenv("FABRIC_CORE");
	struct ivs_addr addr;

	memset(r, 0, sizeof(*r));
	hints->fabric_attr->prov_name = strdup(core ? core : RAW_CORE);
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	/* 1 << 60: also if FI_PROVIDER hides it (fabric/base/lib.h). */
	OK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 1ULL << 60, hints, &r->info));
	fi_freeinfo(hints);
	OK(fi_fabric(r->info->fabric_attr, &r->fabric, NULL));
	OK(fi_domain(r->fabric, r->info, &r->domain, NULL));
	av.type = r->info->domain_attr->av_type;
	OK(fi_av_open(r->domain, &av, &r->av, NULL));
	OK(fi_cq_open(r->domain, &cq, &r->cq, NULL));
	OK(fi_endpoint(r->domain, r->info, &r->ep, NULL));
	OK(fi_ep_bind(r->ep, &r->av->fid, 0));
	OK(fi_ep_bind(r->ep, &r->cq->fid, FI_TRANSMIT | FI_RECV));
	OK(fi_enable(r->ep));
	memcpy(&addr, victim, sizeof(addr));
	CHECK(fi_av_insert(r->av, addr.core, 1, &r->to, 0, NULL) == 1);
	r->memory = malloc(RAW_LEN);
	fill(r->memory, RAW_LEN, 1);
	OK(fi_mr_reg(r->domain, r->memory, RAW_LEN, FI_REMOTE_READ, 0, 77, 0, &r->mr, NULL));
	r->uid = (uint64_t) getpid() << 32 | (uint32_t) rand();
}

void raw_close(struct raw *r)
{
	OK(fi_close(&r->ep->fid));
	OK(fi_close(&r->mr->fid));
	OK(fi_close(&r->cq->fid));
	OK(fi_close(&r->av->fid));
	OK(fi_close(&r->domain->fid));
	OK(fi_close(&r->fabric->fid));
	fi_freeinfo(r->info);
	free(r->memory);
}

void raw_send(struct raw *r, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed, size_t fixed_len,
	      const void *payload, size_t len)
{
	static uint8_t buf[4096];
	struct wire w = { .uid = r->uid,
			  .tag = tag,
			  .op = op,
			  .flags = flags,
			  .fixed_len = (uint16_t) fixed_len,
			  .len = (uint32_t) len,
			  .seq = op == OP_HELLO ? 0 : r->seq++,
			  .seen = r->seen };
	struct fi_cq_tagged_entry e;
	struct fi_context2 context;
	ssize_t n;

	memcpy(buf, &w, sizeof(w));
	if (fixed_len)
		memcpy(buf + sizeof(w), fixed, fixed_len);
	if (len)
		memcpy(buf + sizeof(w) + fixed_len, payload, len);
	while ((n = fi_send(r->ep, buf, sizeof(w) + fixed_len + len, NULL, r->to, &context)) == -FI_EAGAIN)
		fi_cq_read(r->cq, &e, 1);
	OK(n);
	while ((n = fi_cq_read(r->cq, &e, 1)) != 1)
		CHECK(n == -FI_EAGAIN);
}

struct ivs_addr raw_address(const struct raw *r, enum where where)
{
	struct ivs_addr mine = { .kind = IVS_ADDR_CORE };
	size_t len = sizeof(mine.core);

	OK(fi_getname(&r->ep->fid, mine.core, &len));
	mine.core_len = where == NO_ADDRESS ? 0 : (uint8_t) len;
	if (where == NONSENSE)
		memset(mine.core, 0xff, sizeof(mine.core));
	return mine;
}

void raw_hello(struct raw *r, enum where where)
{
	struct ivs_addr mine = raw_address(r, where);

	raw_send(r, OP_HELLO, 0, 0, NULL, 0, &mine, sizeof(mine));
}
