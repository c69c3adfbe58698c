/*
 * vmgone ME RANKS MORTAL: ranks of one job that talk to each other over the provider
 * ivshmem, all with all, until the VM of those from MORTAL on is killed. What touches these
 * must then fail with FI_EIO, all else must go on, and their slots must be had again.
 *
 * Says "talking" when a message has come from everybody, and at its end what it saw. Ends
 * with 1 at the first thing that is not as it should be, by SIGALRM if something hangs.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define RANKS_MAX   8
#define SLOTS_MAX   64
#define LARGE_BYTES 200000 /* goes in pieces, so that some are on their way */
#define ROUNDS	    20	   /* that the living must go on after the others' end */
#define LIMIT_S	    200	   /* seconds of the VM's clock; then it hangs */

struct message {
	uint64_t number;
	uint64_t content; /* seen all that was to be seen */
};

struct peer {
	fi_addr_t addr;
	bool receiving, sending, gone, content, told;
	uint64_t got, sent, got_before;
	uint8_t in[LARGE_BYTES], out[LARGE_BYTES];
};

static struct peer peers[RANKS_MAX];
static struct fid_domain *domain;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fi_info *info;
static int me, ranks, mortal;

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "rank %d: line %d: %s\n", me, __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

static struct fi_info *named(int rank, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *found;
	char name[32];

	snprintf(name, sizeof(name), "vmgone-%d", rank);
	hints->fabric_attr->prov_name = strdup("ivshmem");
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	CHECK(!fi_getinfo(FI_VERSION(1, 9), NULL, name, flags, hints, &found));
	fi_freeinfo(hints);
	return found;
}

static struct fid_ep *endpoint(struct fi_info *of)
{
	struct fid_ep *e;

	CHECK(!fi_endpoint(domain, of, &e, NULL));
	CHECK(!fi_ep_bind(e, &av->fid, 0) && !fi_ep_bind(e, &cq->fid, FI_TRANSMIT | FI_RECV));
	return e;
}

static void join(void)
{
	struct fi_cq_attr ca = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr aa = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fi_info *other;
	int i;

	info = named(me, FI_SOURCE);
	CHECK(!fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(!fi_domain(fabric, info, &domain, NULL));
	CHECK(!fi_av_open(domain, &aa, &av, NULL) && !fi_cq_open(domain, &ca, &cq, NULL));
	ep = endpoint(info);
	CHECK(!fi_enable(ep));
	for (i = 0; i < ranks; i++) {
		other = named(i, 0);
		CHECK(fi_av_insert(av, other->dest_addr, 1, &peers[i].addr, 0, NULL) == 1);
		fi_freeinfo(other);
	}
}

/* Tells how many slots can be had, by taking all and giving them back. */
static int free_slots(void)
{
	struct fid_ep *taken[SLOTS_MAX];
	struct fi_info *nameless = fi_dupinfo(info);
	int n = 0, ret;

	free(nameless->src_addr);
	nameless->src_addr = NULL;
	nameless->src_addrlen = 0;
	do {
		CHECK(n < SLOTS_MAX);
		taken[n] = endpoint(nameless);
		ret = fi_enable(taken[n++]);
	} while (!ret);
	CHECK(ret == -FI_ENOSPC);
	for (int i = 0; i < n; i++)
		CHECK(!fi_close(&taken[i]->fid));
	fi_freeinfo(nameless);
	return n - 1;
}

static void lost(struct peer *p)
{
	int i = (int) (p - peers);

	/* One of the living may have left when all of us had seen what was to be seen. */
	CHECK(i >= mortal || (p->content && p->told));
	p->gone = true;
}

/* Posts what is not under way with a peer: at most one message ahead of its own. */
static void post(struct peer *p, bool content)
{
	struct message m = { p->sent, content };
	ssize_t n;

	if (!p->receiving && !p->gone) {
		n = fi_trecv(ep, p->in, sizeof(p->in), NULL, p->addr, 1, 0, p->in);
		CHECK(!n || n == -FI_EAGAIN || n == -FI_EIO);
		p->receiving = !n;
		if (n == -FI_EIO)
			lost(p);
	}
	if (!p->sending && !p->gone && !p->told && (p->sent <= p->got + 1 || p->content)) {
		memcpy(p->out, &m, sizeof(m));
		n = fi_tsend(ep, p->out, m.number % 2 ? sizeof(p->out) : sizeof(m), NULL, p->addr, 1, p->out);
		CHECK(!n || n == -FI_EAGAIN || n == -FI_EIO);
		p->sending = !n;
		p->sent += !n;
		p->told = content && !n;
		if (n == -FI_EIO)
			lost(p);
	}
}

static struct peer *of(const void *context, bool *receive)
{
	for (int i = 0; i < ranks; i++) {
		*receive = context == peers[i].in;
		if (*receive || context == peers[i].out)
			return &peers[i];
	}
	CHECK(!"a completion of something of ours");
	return NULL;
}

static void look(void)
{
	union {
		struct fi_cq_err_entry e;
		char room[256]; /* newer versions write more */
	} err;
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_sread(cq, &e, 1, NULL, 20);
	struct message m;
	struct peer *p;
	bool receive;

	if (n == -FI_EAGAIN)
		return;
	if (n == -FI_EAVAIL) {
		memset(&err, 0, sizeof(err));
		CHECK(fi_cq_readerr(cq, &err.e, 0) == 1);
		CHECK(err.e.err == FI_EIO);
		p = of(err.e.op_context, &receive);
		*(receive ? &p->receiving : &p->sending) = false;
		lost(p);
		return;
	}
	CHECK(n == 1);
	p = of(e.op_context, &receive);
	if (!receive) {
		p->sending = false;
		return;
	}
	p->receiving = false;
	memcpy(&m, p->in, sizeof(m));
	CHECK(m.number == p->got);
	CHECK(e.len == (m.number % 2 ? sizeof(p->in) : sizeof(m)));
	p->got++;
	p->content = m.content;
}

int main(int argc, char **argv)
{
	bool talking = false, parted = false, content = false, over;
	int i, all, slots = 0;

	if (argc != 4)
		return 2;
	me = atoi(argv[1]);
	ranks = atoi(argv[2]);
	mortal = atoi(argv[3]);
	CHECK(ranks <= RANKS_MAX);
	alarm(LIMIT_S);
	join();
	do {
		over = content;
		all = 0;
		for (i = 0; i < ranks; i++) {
			struct peer *p = &peers[i];

			if (i == me)
				continue;
			post(p, content);
			if (!parted) {
				all += talking ? i >= mortal && p->gone : p->got > 0;
			} else if (i < mortal) {
				/* Whoever has seen all sends no more. */
				all += p->content || p->got >= p->got_before + ROUNDS;
				over = over && p->content && p->told && !p->sending;
			}
		}
		look();
		if (!talking && all == ranks - 1) {
			slots = me ? 0 : free_slots();
			talking = true;
			printf("talking\n");
			fflush(stdout);
		} else if (talking && !parted && all == ranks - mortal) {
			parted = true;
			for (i = 0; i < ranks; i++) {
				peers[i].got_before = peers[i].got;
				/* At once, from now on. */
				CHECK(i < mortal ||
				      fi_tsend(ep, peers[i].out, 8, NULL, peers[i].addr, 1, NULL) == -FI_EIO);
			}
		} else if (parted && !content && all == mortal - 1) {
			if (!me)
				CHECK(free_slots() == slots + ranks - mortal);
			content = true;
		}
	} while (!over);
	CHECK(!fi_close(&ep->fid));
	printf("rank %d: %d are gone, the others went on\n", me, ranks - mortal);
	return 0;
}
