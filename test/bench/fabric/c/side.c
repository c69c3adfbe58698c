#include <stdlib.h>
#include <string.h>

#include "over.h"
#include "pair.h"

void side_open(struct side *s, const char *provider, uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	memset(s, 0, sizeof(*s));
	hints->fabric_attr->prov_name = strdup(provider);
	hints->caps = caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &s->info));
	fi_freeinfo(hints);
	s->inject = s->info->tx_attr->inject_size < 4096 ? s->info->tx_attr->inject_size : 4096;
	check("fi_fabric", fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	check("fi_domain", fi_domain(s->fabric, s->info, &s->domain, NULL));
}

void side_endpoint(struct side *s)
{
	struct fi_cq_attr cqa = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024 };
	struct fi_av_attr ava = { .type = FI_AV_TABLE };

	check("fi_av_open", fi_av_open(s->domain, &ava, &s->av, NULL));
	check("fi_cq_open", fi_cq_open(s->domain, &cqa, &s->tx_cq, NULL));
	check("fi_cq_open", fi_cq_open(s->domain, &cqa, &s->rx_cq, NULL));
	check("fi_endpoint", fi_endpoint(s->domain, s->info, &s->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->tx_cq->fid, FI_TRANSMIT));
	check("fi_ep_bind", fi_ep_bind(s->ep, &s->rx_cq->fid, FI_RECV));
	check("fi_enable", fi_enable(s->ep));
}

void side_name(struct side *s, uint8_t *addr)
{
	size_t len = 128;

	memset(addr, 0, len);
	check("fi_getname", fi_getname(&s->ep->fid, addr, &len));
}

fi_addr_t side_insert(struct side *s, const uint8_t *addr)
{
	fi_addr_t peer;

	if (fi_av_insert(s->av, addr, 1, &peer, 0, NULL) != 1)
		die("fi_av_insert", FI_EINVAL);
	return peer;
}

void side_close_endpoint(struct side *s)
{
	fi_close(&s->ep->fid);
	fi_close(&s->tx_cq->fid);
	fi_close(&s->rx_cq->fid);
	fi_close(&s->av->fid);
}

void side_close(struct side *s)
{
	fi_close(&s->domain->fid);
	fi_close(&s->fabric->fid);
	fi_freeinfo(s->info);
}

static void reap(struct side *s, struct fid_cq *cq)
{
	struct fi_cq_tagged_entry e;
	ssize_t n;

	while ((n = fi_cq_read(cq, &e, 1)) == -FI_EAGAIN)
		/* Manual progress: the other side may wait for what this one does. */
		if (cq == s->tx_cq)
			fi_cq_read(s->rx_cq, NULL, 0);
	if (n < 0)
		die("completion", n);
}

void side_send(struct side *s, const void *buf, size_t len, fi_addr_t to)
{
	struct fi_context2 context;
	bool inject = len <= s->inject;
	ssize_t n;

	while ((n = inject ? fi_tinject(s->ep, buf, len, to, 1) : fi_tsend(s->ep, buf, len, NULL, to, 1, &context)) ==
	       -FI_EAGAIN)
		fi_cq_read(s->rx_cq, NULL, 0);
	if (n)
		die("fi_tsend", n);
	if (!inject)
		reap(s, s->tx_cq);
}

void side_recv(struct side *s, void *buf, size_t len, fi_addr_t from)
{
	struct fi_context2 context;
	ssize_t n;

	while ((n = fi_trecv(s->ep, buf, len, NULL, from, 1, 0, &context)) == -FI_EAGAIN)
		fi_cq_read(s->rx_cq, NULL, 0);
	if (n)
		die("fi_trecv", n);
	reap(s, s->rx_cq);
}
