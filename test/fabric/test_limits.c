/* As many ranks as a region has slots, and their memory use. */
#include <signal.h>
#include <sys/stat.h>

#include <nearmetal/layout.h>

#include "lists.h"

/* Returns the bytes of memory that the region's file uses. */
static uint64_t taken(void)
{
	struct stat st;

	CHECK(!stat(getenv("FI_IVSHMEM_REGION"), &st));
	return (uint64_t) st.st_blocks * 512;
}

/*
 * 1,024 endpoints in one region, each with its queue. The memory of a rank that has not communicated is bounded: its
 * entries of the tables, and the guaranteed part of its area. All other memory is allocated with its messages.
 */
static void full_region(struct ctx *c)
{
	enum { RANKS = NM_LAYOUT_MAX_SLOTS };
	static struct fid_ep *eps[RANKS];
	static const struct setup plain = { .caps = FI_MSG | FI_TAGGED };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .size = 16 };
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = RANKS };
	static fi_addr_t addr[RANKS];
	struct fi_cq_tagged_entry e;
	struct fid_cq *cqs[2];
	unsigned char name[64];
	uint64_t before;
	size_t len;
	int in, i;

	c->info = get_info(&plain);
	OK(fi_fabric(c->info->fabric_attr, &c->fabric, NULL));
	OK(fi_domain(c->fabric, c->info, &c->domain, NULL));
	OK(fi_av_open(c->domain, &av, &c->av, NULL));
	OK(fi_cq_open(c->domain, &cq, &cqs[0], NULL));
	OK(fi_cq_open(c->domain, &cq, &cqs[1], NULL));
	before = taken();
	for (i = 0; i < RANKS; i++) {
		OK(fi_endpoint(c->domain, c->info, &eps[i], NULL));
		OK(fi_ep_bind(eps[i], &c->av->fid, 0));
		OK(fi_ep_bind(eps[i], &cqs[i == RANKS - 1]->fid, FI_TRANSMIT | FI_RECV));
		OK(fi_enable(eps[i]));
		len = sizeof(name);
		OK(fi_getname(&eps[i]->fid, name, &len));
		CHECK(fi_av_insert(c->av, name, 1, &addr[i], 0, NULL) == 1);
	}
	/* docs/fabric-design.md: 256 KiB of bounce buffers, and a ring of 640 bytes to each. */
	CHECK(taken() - before <= (uint64_t) RANKS * ((256 << 10) + RANKS * 640 + 4096));
	/* Send from the first rank, one in the middle and the last but one to the last. */
	for (i = 0; i < 3; i++) {
		int from = i * (RANKS - 2) / 2;
		fi_addr_t src;

		before = taken();
		OK(fi_trecv(eps[RANKS - 1], &in, sizeof(in), NULL, addr[from], 7, 0, NULL));
		while (fi_tinject(eps[from], &from, sizeof(from), addr[RANKS - 1], 7) == -FI_EAGAIN)
			fi_cq_read(cqs[0], &e, 0);
		while (fi_cq_readfrom(cqs[1], &e, 1, &src) != 1)
			;
		CHECK(in == from && src == addr[from]);
		/* A ring of 16.1 KiB, and some pages of the tables. */
		CHECK(taken() - before <= 10 * 4096);
	}
	for (i = 0; i < RANKS; i++)
		OK(fi_close(&eps[i]->fid));
	OK(fi_close(&cqs[0]->fid));
	OK(fi_close(&cqs[1]->fid));
	OK(fi_close(&c->av->fid));
	OK(fi_close(&c->domain->fid));
	OK(fi_close(&c->fabric->fid));
	fi_freeinfo(c->info);
}

/*
 * The sender of a message that was only shown is killed before it is received: the message fails, also if it was
 * claimed.
 */
static void shown_by_the_dead(struct ctx *c)
{
	enum { LEN = 300000 };
	static char buf[LEN];
	struct fi_context ctx;
	struct iovec iov = { buf, LEN };
	struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = 2, .context = &ctx };
	struct fi_cq_tagged_entry e;
	ssize_t n;

	if (c->rank) {
		RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 1, NULL));
		RETRY(c, fi_tsend(c->ep, buf, LEN, NULL, c->peer[0], 2, NULL));
		barrier(c);
		raise(SIGKILL);
	}
	for (;;) {
		struct fi_cq_err_entry err;

		OK(fi_trecvmsg(c->ep, &msg, FI_PEEK | FI_CLAIM));
		n = fi_cq_read(c->rxcq, &e, 1);
		if (n == 1)
			break;
		CHECK(n == -FI_EAVAIL && fi_cq_readerr(c->rxcq, &err, 0) == 1);
	}
	barrier(c);
	/* Wait until the death is noticed: a receive that only the dead rank could answer fails. */
	OK(fi_trecv(c->ep, buf, 1, NULL, c->peer[1], 3, 0, NULL));
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	OK(fi_trecv(c->ep, buf, LEN, NULL, c->peer[1], 1, 0, buf));
	while ((n = fi_cq_read(c->rxcq, &e, 1)) == -FI_EAGAIN)
		;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err;

		CHECK(fi_cq_readerr(c->rxcq, &err, 0) == 1 && err.err == FI_EIO);
	} else {
		/* The death was noticed only now. */
		CHECK(n == 1 && e.len == LEN);
	}
	msg.msg_iov = &iov;
	msg.iov_count = 1;
	n = fi_trecvmsg(c->ep, &msg, FI_CLAIM);
	CHECK(n == -FI_EINVAL || !n);
}

const struct test test_limits[] = { { "full_region", 1, full_region, .bare = true,
				      .env = { "FI_IVSHMEM_RANKS=1024", "FI_IVSHMEM_REGION_SIZE=4294967296" } },
				    { "shown_by_the_dead", 2, shown_by_the_dead, .killed = 1,
				      .env = { "FI_IVSHMEM_TIMEOUT=2000" } },
				    { "shown_by_the_dead_no_cma", 2, shown_by_the_dead, .killed = 1,
				      .env = { "FI_IVSHMEM_CMA=0", "FI_IVSHMEM_TIMEOUT=2000" } },
				    { 0 } };
