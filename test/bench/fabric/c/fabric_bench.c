/*
 * fabric_bench: what two processes on two cores reach at the level of libfabric, and the
 * physical limits beside it.
 *
 *	fabric_bench limits		cache-line ping-pong, one and two copies
 *	fabric_bench pingpong		the ping-pong alone, in a few ms: where the cores are
 *	fabric_bench messages PROVIDER	tagged messages: latency, rate, bandwidth
 *	fabric_bench few PROVIDER	a third of these figures
 *	fabric_bench beside PROVIDER OTHER N	the same over two providers in turns, with N
 *					pairs of endpoints, one after another; the other's
 *					figures are called other-NAME
 *	fabric_bench puts PROVIDER	fi_write, to memory in the region where there is one
 *	fabric_bench idle PROVIDER	8 B latency alone, and with as many idle peers as
 *					there is room for
 *	fabric_bench work PROVIDER	tagged messages, both ends in one thread on one core
 *	fabric_bench senders PROVIDER	8 B from 1 to 32 senders in turns, all ends in one thread;
 *					BYTES is their number
 *	fabric_bench count PROVIDER N	messages of N bytes, in a function that callgrind counts
 *	fabric_bench start PROVIDER N	N processes that begin, greet a neighbour and end
 *
 * One line a figure: NAME BYTES VALUE; latency, work and put in us, copies and bandwidth in
 * GB/s, rate in million messages/s, start in ms.
 */
#include "pair.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_errno.h>

struct common *common;
int rank;

void die(const char *what, long err)
{
	fprintf(stderr, "fabric_bench: %s: %s\n", what, fi_strerror((int) (err < 0 ? -err : err)));
	exit(1);
}

void check(const char *what, long err)
{
	if (err)
		die(what, err);
}

void arrive(void)
{
	__atomic_add_fetch(&common->arrived[rank], 1, __ATOMIC_ACQ_REL);
}

bool both_arrived(void)
{
	return __atomic_load_n(&common->arrived[!rank], __ATOMIC_ACQUIRE) >=
	       __atomic_load_n(&common->arrived[rank], __ATOMIC_RELAXED);
}

void meet(void)
{
	arrive();
	while (!both_arrived())
		meter_idle();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pid_t child;
	int status;

	common = meter_shared(sizeof(*common));
	if (!common)
		die("the memory of both ranks", errno);
	if (argc == 4 && !strcmp(what, "start"))
		return start(argv[2], atoi(argv[3]));
	if (argc == 3 && (!strcmp(what, "work") || !strcmp(what, "senders"))) {
		meter_pin(0);
		alarm(40);
		(*what == 'w' ? work : senders)(argv[2]);
		return 0;
	}
	if (argc == 4 && !strcmp(what, "count")) {
		count(argv[2], (size_t) strtoul(argv[3], NULL, 10));
		return 0;
	}
	if ((argc != 5 || strcmp(what, "beside") || atoi(argv[4]) < 1 || atoi(argv[4]) > BESIDE_MAX) &&
	    (argc != 2 || (strcmp(what, "limits") && strcmp(what, "pingpong"))) &&
	    (argc != 3 ||
	     (strcmp(what, "messages") && strcmp(what, "few") && strcmp(what, "puts") && strcmp(what, "idle")))) {
		fprintf(stderr, "usage: fabric_bench limits|pingpong | messages|few|puts|idle|work|senders PROVIDER | "
				"beside PROVIDER OTHER N | count|start PROVIDER N\n");
		return 2;
	}
	rank = meter_ranks(&child);
	if (rank < 0)
		die("fork", errno);
	meter_pin(rank);
	alarm(meter_yields ? 600 : 40);
	/* Each on its core first: on that of one that spins in real time, the other would starve. */
	meet();
	if (!strcmp(what, "limits"))
		limits();
	else if (!strcmp(what, "pingpong"))
		limits_pingpong();
	else if (!strcmp(what, "messages"))
		over(argv[2], false);
	else if (!strcmp(what, "few"))
		over(argv[2], true);
	else if (!strcmp(what, "beside"))
		over_beside(argv[2], argv[3], atoi(argv[4]));
	else if (!strcmp(what, "puts"))
		over_puts(argv[2]);
	else
		idle(argv[2]);
	fflush(stdout);
	if (!child)
		_exit(0);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
