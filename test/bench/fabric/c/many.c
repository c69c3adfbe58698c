/* Many processes or peers: what they cost those that talk. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "over.h"
#include "pair.h"

#define CROWD_MAX 1022 /* with the two that talk, all of a region's slots */

static struct side side;
static fi_addr_t peer;

static void tw_send(const void *buf, size_t len)
{
	side_send(&side, buf, len, peer);
}

static void tw_recv(void *buf, size_t len)
{
	side_recv(&side, buf, len, peer);
}

static void tw_send_window(const void *buf, size_t len, int count)
{
	while (count--)
		tw_send(buf, len);
}

static void tw_recv_window(void *buf, size_t len, int count)
{
	while (count--)
		tw_recv(buf, len);
}

static void tw_meet(void)
{
	meet();
}

static long tw_agree(long value)
{
	if (rank == 0)
		common->word = (uint64_t) value;
	meet();
	return (long) common->word;
}

#include "twoway.h"

static void pause_until(uint64_t *word, uint64_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
		usleep(1000);
}

/* One process with CROWD_MAX endpoints, each of which sends a message to both ranks. */
static void crowd(const char *provider)
{
	static struct side sides[CROWD_MAX];
	uint8_t hello[8] = { 0 };

	pause_until(&common->chunks[0][0], 1);
	side_open(&sides[0], provider, FI_TAGGED | FI_DIRECTED_RECV);
	for (int i = 0; i < CROWD_MAX; i++) {
		sides[i] = sides[0];
		side_endpoint(&sides[i]);
		side_name(&sides[i], common->addr[2 + i]);
		for (int r = 0; r < 2; r++)
			side_send(&sides[i], hello, 8, side_insert(&sides[i], common->addr[r]));
	}
	__atomic_store_n(&common->chunks[0][0], 2, __ATOMIC_RELEASE);
	pause_until(&common->chunks[0][0], 3);
	_exit(0);
}

void idle(const char *provider)
{
	uint8_t out[64] = { 0 }, in[64];
	pid_t child = 0, parent = getpid();
	int i;

	/* Before there is a region: its users do not fork. */
	if (rank == 0) {
		child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			crowd(provider);
		}
	}
	side_open(&side, provider, FI_TAGGED | FI_DIRECTED_RECV);
	side_endpoint(&side);
	side_name(&side, common->addr[rank]);
	meet();
	peer = side_insert(&side, common->addr[!rank]);
	meter_realtime();
	tw_latency("latency-alone", out, in, 8);
	meter_normal();
	if (rank == 0)
		__atomic_store_n(&common->chunks[0][0], 1, __ATOMIC_RELEASE);
	pause_until(&common->chunks[0][0], 2);
	for (i = 0; i < CROWD_MAX; i++)
		side_recv(&side, in, sizeof(in), FI_ADDR_UNSPEC);
	for (i = 0; i < CROWD_MAX; i++)
		side_send(&side, out, 8, side_insert(&side, common->addr[2 + i]));
	meter_realtime();
	tw_latency("latency-crowd", out, in, 8);
	meter_normal();
	meet();
	if (rank == 0) {
		__atomic_store_n(&common->chunks[0][0], 3, __ATOMIC_RELEASE);
		waitpid(child, NULL, 0);
	}
	side_close_endpoint(&side);
	side_close(&side);
}

/* The i'th of count processes. */
static void begin(const char *provider, int i, int count)
{
	uint8_t out[8] = { 0 }, in[8];
	int left = (i + count - 1) % count;
	fi_addr_t to, from, all;

	side_open(&side, provider, FI_TAGGED | FI_DIRECTED_RECV);
	side_endpoint(&side);
	side_name(&side, common->addr[i]);
	__atomic_add_fetch(&common->word, 1, __ATOMIC_ACQ_REL);
	pause_until(&common->word, (uint64_t) count);
	/* As MPIs do: everybody's address. */
	to = from = 0;
	for (int k = 0; k < count; k++) {
		all = side_insert(&side, common->addr[k]);
		if (k == (i + 1) % count)
			to = all;
		if (k == left)
			from = all;
	}
	side_send(&side, out, 8, to);
	side_recv(&side, in, 8, from);
	__atomic_add_fetch(&common->key, 1, __ATOMIC_ACQ_REL);
	pause_until(&common->key, (uint64_t) count);
	side_close_endpoint(&side);
	side_close(&side);
}

int start(const char *provider, int count)
{
	double t = meter_now();
	int status, bad = 0;

	if (count < 2 || count > PAIR_MAX) {
		fprintf(stderr, "fabric_bench: start: 2 to %d processes\n", PAIR_MAX);
		return 2;
	}
	for (int i = 0; i < count; i++)
		if (!fork()) {
			alarm(50);
			begin(provider, i, count);
			_exit(0);
		}
	for (int i = 0; i < count; i++)
		bad |= wait(&status) < 0 || status;
	if (!bad)
		meter_print("start", (size_t) count, (meter_now() - t) / 1e3);
	return bad;
}
