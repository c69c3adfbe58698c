/* Logs one line when an endpoint closes: the channels that were used, and how much. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "proto/proto.h"
#include "remote/core.h"
#include "remote/passthrough.h"

struct use {
	unsigned int ranks;
	uint64_t sent; /* lines of 64 bytes, or messages of the core provider */
};

/*
 * Writes a line to standard error at once. libfabric would print it to an unbuffered stream, which a C library from
 * 2.37 on writes in pieces of 128 bytes: a launcher mixes the pieces of several ranks, and programs read this line.
 */
static void write_line(const char *p, size_t left)
{
	while (left) {
		ssize_t n = write(STDERR_FILENO, p, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		p += n;
		left -= (size_t) n;
	}
}

void ivs_report_use(struct ivs_ep *ep)
{
	struct use near = { 0 }, region = { 0 }, core = { 0 }, *u;
	struct ivs_list *pos;
	char line[512]; /* its numbers have at most 180 digits */
	uint64_t direct = 0, reads = 0;
	int n;

	ivs_passthrough_report(ep);
	ivs_list_each(pos, &ep->peers_all) {
		struct ivs_peer *p = ivs_entry(pos, struct ivs_peer, all);

		direct += p->proto.cma_copies;
		reads += p->core.reads;
		if (p->core.sent || p->core.seen || p->core.passthrough_sent) {
			core.ranks++;
			core.sent += p->core.sent + p->core.passthrough_sent;
		} else if (p->ring.tx_head || p->ring.rx_head) {
			u = p->proto.pid ? &near : &region;
			u->ranks++;
			u->sent += p->ring.tx_head;
		}
	}
	if (!ivs_lib.log_enabled(&ivs_prov, FI_LOG_INFO, FI_LOG_EP_CTRL))
		return;
	n = snprintf(
		line, sizeof(line),
		"libfabric:%d:%lld:%s:ep_ctrl:%s():%d<info> channels used: "
		"%u ranks of this VM, %ju lines, %ju direct copies; "
		"%u ranks of other VMs, %ju lines; %u ranks over the core provider, %ju messages, %ju direct reads\n",
		(int) getpid(), (long long) time(NULL), ivs_prov.name, __func__, __LINE__, near.ranks,
		(uintmax_t) near.sent, (uintmax_t) direct, region.ranks, (uintmax_t) region.sent, core.ranks,
		(uintmax_t) core.sent, (uintmax_t) reads);
	write_line(line, (size_t) n);
}
