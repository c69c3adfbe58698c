#include "inner.h"

bool ivs_inner_wanted(void)
{
	return false;
}

int ivs_inner_open(struct ivs_domain *domain, struct ivs_inner **inner)
{
	(void) domain;
	*inner = NULL;
	return -FI_ENODATA;
}

void ivs_inner_close(struct ivs_inner *inner)
{
	(void) inner;
}

int ivs_inner_enable(struct ivs_ep *ep)
{
	(void) ep;
	return 0;
}

void ivs_inner_disable(struct ivs_ep *ep)
{
	(void) ep;
}

int ivs_inner_connect(struct ivs_peer *peer)
{
	(void) peer;
	return -FI_EHOSTUNREACH;
}

int ivs_inner_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	(void) peer;
	(void) pkt;
	return -FI_EIO;
}

int ivs_inner_poll(struct ivs_ep *ep)
{
	(void) ep;
	return 0;
}
