/* Messages and puts over a provider. */
#include "over.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nearmetal/fabric.h>

#include "../../../../fabric/ring/copy.h"
#include "pair.h"

static struct side side;
static fi_addr_t peer;
static struct fi_context2 contexts[METER_WINDOW];

static inline void reap(struct fid_cq *cq, int count)
{
	struct fi_cq_tagged_entry e[16];

	while (count > 0) {
		ssize_t n = fi_cq_read(cq, e, count < 16 ? (size_t) count : 16);

		if (n == -FI_EAGAIN) {
			if (cq == side.tx_cq)
				fi_cq_read(side.rx_cq, e, 0);
			meter_idle();
			continue;
		}
		if (n < 0)
			die("completion", n);
		count -= (int) n;
	}
}

static inline void post_recv(void *buf, size_t len, int i)
{
	ssize_t n;

	while ((n = fi_trecv(side.ep, buf, len, NULL, peer, 1, 0, &contexts[i])) == -FI_EAGAIN)
		fi_cq_read(side.rx_cq, NULL, 0);
	if (n)
		die("fi_trecv", n);
}

/* Returns how many completions will come. */
static inline int post_send(const void *buf, size_t len, int i)
{
	ssize_t n;

	for (;;) {
		n = len <= side.inject ? fi_tinject(side.ep, buf, len, peer, 1)
				       : fi_tsend(side.ep, buf, len, NULL, peer, 1, &contexts[i]);
		if (!n)
			return len > side.inject;
		if (n != -FI_EAGAIN)
			die("fi_tsend", n);
		fi_cq_read(side.rx_cq, NULL, 0);
		meter_idle();
	}
}

static inline void tw_send(const void *buf, size_t len)
{
	reap(side.tx_cq, post_send(buf, len, 0));
}

static inline void tw_recv(void *buf, size_t len)
{
	post_recv(buf, len, 0);
	reap(side.rx_cq, 1);
}

static void tw_send_window(const void *buf, size_t len, int count)
{
	int comps = 0;

	for (int i = 0; i < count; i++)
		comps += post_send(buf, len, i);
	reap(side.tx_cq, comps);
}

static void tw_recv_window(void *buf, size_t len, int count)
{
	for (int i = 0; i < count; i++)
		post_recv(buf, len, i);
	reap(side.rx_cq, count);
}

/* Manual progress: answers that the other one waits for may still be to be sent. */
static void tw_meet(void)
{
	arrive();
	while (!both_arrived()) {
		fi_cq_read(side.rx_cq, NULL, 0);
		meter_idle();
	}
}

static long tw_agree(long value)
{
	if (rank == 0)
		common->word = (uint64_t) value;
	tw_meet();
	return (long) common->word;
}

#include "twoway.h"

static void open_pair(const char *provider, uint64_t caps)
{
	side_open(&side, provider, caps);
	side_endpoint(&side);
	side_name(&side, common->addr[rank]);
	meet();
	peer = side_insert(&side, common->addr[!rank]);
	meter_realtime();
}

static void close_pair(void)
{
	tw_meet();
	side_close_endpoint(&side);
	side_close(&side);
}

static uint8_t *memory(int value)
{
	uint8_t *m = aligned_alloc(4096, METER_LARGEST);

	if (!m)
		die("memory", FI_ENOMEM);
	return memset(m, value, METER_LARGEST);
}

void over(const char *provider, bool few)
{
	uint8_t *out = memory(1), *in = memory(2);

	open_pair(provider, FI_TAGGED | FI_DIRECTED_RECV);
	if (few)
		tw_few(out, in);
	else
		tw_all(out, in);
	close_pair();
	free(out);
	free(in);
}

#define FIGURES_MAX 64

void over_beside(const char *provider, const char *other, int pairs)
{
	static double values[2][FIGURES_MAX][BESIDE_MAX];
	static const char *what[FIGURES_MAX];
	static size_t len[FIGURES_MAX];
	uint8_t *out = memory(1), *in = memory(2);
	const char *names[2] = { provider, other };
	struct side sides[2];
	fi_addr_t peers[2];
	char name[64];
	int figures = 0;

	for (int n = 0; n < pairs; n++) {
		for (int k = 0; k < 2; k++) {
			open_pair(names[k], FI_TAGGED | FI_DIRECTED_RECV);
			sides[k] = side;
			peers[k] = peer;
		}
		for (figures = 0; figures < FIGURES_MAX; figures++) {
			bool more = true;

			for (int k = 0; more && k < 2; k++) {
				/* Who comes first changes. */
				int which = (k + n + figures) % 2;

				side = sides[which];
				peer = peers[which];
				more = tw_figure(figures, out, in, &what[figures], &len[figures],
						 &values[which][figures][n]);
			}
			if (!more)
				break;
		}
		for (int k = 0; k < 2; k++) {
			side = sides[k];
			close_pair();
		}
	}
	for (int k = 0; rank == 0 && k < 2; k++)
		for (int i = 0; i < figures; i++) {
			snprintf(name, sizeof(name), "%s%s", k ? "other-" : "", what[i]);
			meter_print(name, len[i], meter_median(values[k][i], pairs));
		}
	free(out);
	free(in);
}

/* Where the i'th of many puts goes: all over the memory, as in a window of an MPI. */
static inline size_t place(size_t len, long i)
{
	return (size_t) i * len & (METER_LARGEST - 1);
}

/* Time in us of a put of len bytes, with all completed; a window of them at a time. */
static double writes(const uint8_t *from, size_t len, long count)
{
	int window = len <= 8 ? 1 : meter_window(len), i = 0;
	double t = meter_now();
	ssize_t n;

	for (long k = 0; k < count; k++) {
		size_t at = len <= 8 ? 0 : place(len, k);

		while ((n = fi_write(side.ep, from + at, len, NULL, peer, common->offset + at, common->key,
				     &contexts[i])) == -FI_EAGAIN)
			fi_cq_read(side.rx_cq, NULL, 0);
		if (n)
			die("fi_write", n);
		if (++i == window || k == count - 1) {
			reap(side.tx_cq, i);
			i = 0;
		}
	}
	return (meter_now() - t) / (double) count;
}

static double copies(uint8_t *to, const uint8_t *from, size_t len, long count)
{
	double t = meter_now();

	for (long k = 0; k < count; k++) {
		memcpy(to + place(len, k), from + place(len, k), len);
		__asm__ volatile("" ::: "memory");
	}
	return (meter_now() - t) / (double) count;
}

/* put and memcpy in turns, so that both see the same machine. own: memory of the region. */
static void put(const uint8_t *from, uint8_t *own, size_t len)
{
	double w[METER_SLICES], c[METER_SLICES];
	long count = meter_count(writes(from, len, 10), 10, 3000, 1);

	if (own)
		copies(own, from, len, 1);
	for (int s = 0; s < METER_SLICES; s++) {
		w[s] = writes(from, len, count);
		if (own)
			c[s] = copies(own, from, len, count);
	}
	if (len <= 8)
		meter_print("put", len, meter_median(w, METER_SLICES));
	else
		meter_print("put-bandwidth", len, (double) len / meter_median(w, METER_SLICES) / 1e3);
	if (own && len > 8)
		meter_print("put-memcpy", len, (double) len / meter_median(c, METER_SLICES) / 1e3);
}

void over_puts(const char *provider)
{
	struct nm_fabric_memory *ops = NULL;
	uint8_t *from = memory(1), *target = NULL;
	struct fid_mr *mr;

	open_pair(provider, FI_RMA | FI_TAGGED | FI_DIRECTED_RECV);
	if (!fi_open_ops(&side.domain->fid, NM_FABRIC_MEMORY, 0, (void **) &ops, NULL))
		target = ops->alloc(side.domain, METER_LARGEST);
	if (!target) {
		ops = NULL;
		target = memory(2);
	}
	memset(target, 2, METER_LARGEST);
	check("fi_mr_reg", fi_mr_reg(side.domain, target, METER_LARGEST, FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL));
	if (rank == 1) {
		common->key = fi_mr_key(mr);
		common->offset = side.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t) target : 0;
	}
	meet();
	if (rank == 0) {
		put(from, ops ? target : NULL, 8);
		for (int i = 0; i < meter_bandwidth_count; i++)
			put(from, ops ? target : NULL, meter_bandwidth_sizes[i]);
		__atomic_store_n(&common->word, 1, __ATOMIC_RELEASE);
	} else {
		/* Some providers need the target to poll. */
		while (!__atomic_load_n(&common->word, __ATOMIC_ACQUIRE))
			fi_cq_read(side.rx_cq, NULL, 0);
	}
	meet();
	fi_close(&mr->fid);
	close_pair();
}
