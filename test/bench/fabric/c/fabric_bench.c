/*
 * fabric_bench: latency, bandwidth and message rate between two processes on two
 * cores, at the level of libfabric, and the physical limits beside them.
 *
 *	fabric_bench raw		cache-line ping-pong, one and two copies
 *	fabric_bench PROVIDER		over a provider of libfabric, tagged messages
 *
 * One line a figure: NAME BYTES VALUE; latency in us (half a round trip), bandwidth
 * in GB/s, rate in million messages/s. Both processes are pinned, and run at
 * real-time priority where that is allowed, within RLIMIT_RTTIME.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define LARGEST (8UL << 20)
#define WINDOW 64

static const size_t latency_sizes[] = { 0, 8, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536,
					262144, 1048576 };
static const size_t bw_sizes[] = { 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
				   1048576, 4194304, 8388608 };

static struct {
	_Alignas(64) uint8_t addr[2][128];
	_Alignas(64) uint32_t ready[2];
	_Alignas(64) volatile uint64_t ball[2][32];
	_Alignas(4096) uint8_t bounce[1 << 20];
} *common;

static int rank;

static void die(const char *what, long err)
{
	fprintf(stderr, "fabric_bench: %s: %s\n", what, fi_strerror((int) (err < 0 ? -err : err)));
	exit(1);
}

static void check(const char *what, long err)
{
	if (err)
		die(what, err);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}

static void pin(int cpu)
{
	struct rlimit limit = { 60000000, 60000000 };	/* us of running without a pause */
	struct sched_param p = { .sched_priority = 1 };
	cpu_set_t set, all;
	int i, seen = 0;

	/* The cpu'th of those that we may use. */
	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&set);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && seen++ == cpu % CPU_COUNT(&all))
			CPU_SET(i, &set);
	sched_setaffinity(0, sizeof(set), &set);
	/* A spinning real-time process must not keep the machine for ever. */
	if (!getenv("NO_REALTIME") && !setrlimit(RLIMIT_RTTIME, &limit))
		sched_setscheduler(0, SCHED_FIFO, &p);
}

static void meet(void)
{
	__atomic_add_fetch(&common->ready[rank], 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&common->ready[!rank], __ATOMIC_ACQUIRE) <
	       __atomic_load_n(&common->ready[rank], __ATOMIC_RELAXED))
		;
}

static long iterations(size_t len)
{
	return len <= 1024 ? 20000 : len <= 65536 ? 3000 : 300;
}

/* The limits. */
static void raw(void)
{
	static uint8_t src[LARGEST], dst[LARGEST];
	long n = 200000, i, k;
	double t = 0;

	for (k = 0; k < 2; k++) {
		meet();
		t = now_us();
		for (i = 1; i <= n; i++) {
			if (rank == 0) {
				__atomic_store_n(&common->ball[0][0], (uint64_t) (k * n + i), __ATOMIC_RELEASE);
				while (__atomic_load_n(&common->ball[1][0], __ATOMIC_ACQUIRE) !=
				       (uint64_t) (k * n + i))
					;
			} else {
				while (__atomic_load_n(&common->ball[0][0], __ATOMIC_ACQUIRE) !=
				       (uint64_t) (k * n + i))
					;
				__atomic_store_n(&common->ball[1][0], (uint64_t) (k * n + i), __ATOMIC_RELEASE);
			}
		}
		t = now_us() - t;
	}
	if (rank)
		return;
	printf("latency 8 %.4f\n", t / (double) n / 2);
	for (size_t s = 0; s < sizeof(bw_sizes) / sizeof(bw_sizes[0]); s++) {
		size_t len = bw_sizes[s];
		long rounds = (long) ((256UL << 20) / len);
		double one, two;

		memset(src, 1, len);
		memset(dst, 1, len);
		one = now_us();
		for (i = 0; i < rounds; i++) {
			memcpy(dst, src, len);
			__asm__ volatile("" ::: "memory");
		}
		one = now_us() - one;
		printf("copy %zu %.3f\n", len, (double) len * (double) rounds / one / 1e3);
		two = now_us();
		for (i = 0; i < rounds; i++)
			for (size_t at = 0; at < len; at += 8192) {
				size_t part = len - at < 8192 ? len - at : 8192;

				memcpy(common->bounce + at % sizeof(common->bounce), src + at, part);
				__asm__ volatile("" ::: "memory");
				memcpy(dst + at, common->bounce + at % sizeof(common->bounce), part);
			}
		two = now_us() - two;
		printf("copies %zu %.3f\n", len, (double) len * (double) rounds / two / 1e3);
	}
}

static struct fid_ep *ep;
static struct fid_cq *txcq, *rxcq;
static fi_addr_t peer;
static size_t inject;

static void reap(struct fid_cq *cq, long count)
{
	struct fi_cq_tagged_entry e[16];

	while (count > 0) {
		ssize_t n = fi_cq_read(cq, e, count < 16 ? (size_t) count : 16);

		if (n == -FI_EAGAIN) {
			/* Manual progress: the other side may wait for what this one does. */
			if (cq == txcq)
				fi_cq_read(rxcq, e, 0);
			continue;
		}
		if (n < 0)
			die("completion", n);
		count -= n;
	}
}

static void post_recv(void *buf, size_t len)
{
	ssize_t n;

	while ((n = fi_trecv(ep, buf, len, NULL, peer, 1, 0, NULL)) == -FI_EAGAIN)
		fi_cq_read(rxcq, NULL, 0);
	if (n)
		die("fi_trecv", n);
}

/* Gives whether a completion will come. */
static bool post_send(const void *buf, size_t len)
{
	ssize_t n;

	for (;;) {
		n = len <= inject ? fi_tinject(ep, buf, len, peer, 1) :
		    fi_tsend(ep, buf, len, NULL, peer, 1, NULL);
		if (!n)
			return len > inject;
		if (n != -FI_EAGAIN)
			die("fi_tsend", n);
		fi_cq_read(rxcq, NULL, 0);
	}
}

static void pingpong(uint8_t *out, uint8_t *in, size_t len)
{
	long n = iterations(len), i;
	double t = 0;
	int k;

	for (k = 0; k < 2; k++) {
		long count = k ? n : n / 10;

		meet();
		t = now_us();
		for (i = 0; i < count; i++) {
			post_recv(in, len);
			if (rank == 0) {
				bool comp = post_send(out, len);

				reap(rxcq, 1);
				reap(txcq, comp);
			} else {
				bool comp;

				reap(rxcq, 1);
				comp = post_send(out, len);
				reap(txcq, comp);
			}
		}
		t = now_us() - t;
	}
	if (rank == 0)
		printf("latency %zu %.4f\n", len, t / (double) n / 2);
}

static void stream(uint8_t *out, uint8_t *in, size_t len, bool rate)
{
	long rounds = rate ? 2000 : len <= 65536 ? 100 : len <= 1048576 ? 10 : 3, r, w;
	double t = 0;
	int k;

	for (k = 0; k < 2; k++) {
		long count = k ? rounds : 1 + rounds / 10;

		meet();
		t = now_us();
		for (r = 0; r < count; r++) {
			if (rank == 0) {
				long comps = 0;

				for (w = 0; w < WINDOW; w++)
					comps += post_send(out, len);
				reap(txcq, comps);
				post_recv(in, 4);
				reap(rxcq, 1);
			} else {
				for (w = 0; w < WINDOW; w++)
					post_recv(in, len);
				reap(rxcq, WINDOW);
				reap(txcq, post_send(out, 4));
			}
		}
		t = now_us() - t;
	}
	if (rank == 0) {
		double messages = (double) rounds * WINDOW;

		if (rate)
			printf("rate %zu %.3f\n", len, messages / t);
		else
			printf("bandwidth %zu %.3f\n", len, messages * (double) len / t / 1e3);
	}
}

static void over(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_cq_attr cqa = { .format = FI_CQ_FORMAT_TAGGED, .size = 1024 };
	struct fi_av_attr ava = { .type = FI_AV_TABLE };
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	size_t len = sizeof(common->addr[0]), i;
	struct fid_av *av;
	uint8_t *out, *in;

	hints->fabric_attr->prov_name = strdup(provider);
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	check("fi_getinfo", fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info));
	inject = info->tx_attr->inject_size < 4096 ? info->tx_attr->inject_size : 4096;
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	check("fi_av_open", fi_av_open(domain, &ava, &av, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cqa, &txcq, NULL));
	check("fi_cq_open", fi_cq_open(domain, &cqa, &rxcq, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
	check("fi_ep_bind", fi_ep_bind(ep, &txcq->fid, FI_TRANSMIT));
	check("fi_ep_bind", fi_ep_bind(ep, &rxcq->fid, FI_RECV));
	check("fi_enable", fi_enable(ep));
	check("fi_getname", fi_getname(&ep->fid, common->addr[rank], &len));
	meet();
	if (fi_av_insert(av, common->addr[!rank], 1, &peer, 0, NULL) != 1)
		die("fi_av_insert", FI_EINVAL);
	out = aligned_alloc(4096, LARGEST);
	in = aligned_alloc(4096, LARGEST);
	memset(out, 1, LARGEST);
	memset(in, 2, LARGEST);
	for (i = 0; i < sizeof(latency_sizes) / sizeof(latency_sizes[0]); i++)
		pingpong(out, in, latency_sizes[i]);
	for (i = 0; i < sizeof(bw_sizes) / sizeof(bw_sizes[0]); i++)
		stream(out, in, bw_sizes[i], false);
	stream(out, in, 8, true);
	meet();
	fi_close(&ep->fid);
	fi_close(&txcq->fid);
	fi_close(&rxcq->fid);
	fi_close(&av->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
}

int main(int argc, char **argv)
{
	pid_t child;
	int status;

	if (argc != 2) {
		fprintf(stderr, "usage: fabric_bench raw|PROVIDER\n");
		return 2;
	}
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (common == MAP_FAILED)
		die("mmap", errno);
	memset(common, 0, sizeof(*common));
	child = fork();
	rank = child ? 0 : 1;
	pin(rank);
	alarm(120);
	if (!strcmp(argv[1], "raw"))
		raw();
	else
		over(argv[1]);
	fflush(stdout);
	if (!child)
		_exit(0);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
