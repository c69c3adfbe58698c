#include "peer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "summary.h"
#include "values.h"

#define TEMPORARY_BYTES (8ULL << 20)

static bool cpus(const char *text, int out[2])
{
	char *end;
	long a, b;

	a = b = strtol(text, &end, 10);
	if (*end == ',' && end != text) {
		const char *second = end + 1;

		b = strtol(second, &end, 10);
		if (end == second)
			end = (char *) text;
	}
	if (end == text || *end || *text == '-' || a < 0 || b < 0 || a >= CPU_SETSIZE || b >= CPU_SETSIZE) {
		complain("--cpus: \"%s\" is not the number of a CPU, or two as A,B", text);
		return false;
	}
	out[0] = (int) a;
	out[1] = (int) b;
	return true;
}

bool peer_option(struct peer_options *o, int option, const char *value)
{
	switch (option) {
	case PEER_REGION: o->region = value; return true;
	case PEER_ROLE:
		if (strcmp(value, "a") && strcmp(value, "b")) {
			complain("--role: \"%s\" is neither a nor b", value);
			return false;
		}
		o->role = *value;
		return true;
	case PEER_FORK: o->fork = true; return true;
	case PEER_CPUS: return cpus(value, o->cpus);
	case PEER_TIMEOUT: return value_seconds("timeout", value, 0.01, 86400, &o->timeout);
	case PEER_JSON: o->json = true; return true;
	}
	return false;
}

bool peer_options_check(const struct peer_options *o)
{
	if (o->fork && o->role)
		complain("--fork is both sides: leave --role out");
	else if (!o->fork && !o->role)
		complain("--role a in one VM and --role b in another, or --fork for two processes of this host");
	else
		return true;
	return false;
}

static bool pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return true;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (!sched_setaffinity(0, sizeof(set), &set))
		return true;
	complain("cannot run on CPU %d: %s", cpu, strerror(errno));
	return false;
}

bool peer_lost(const struct peer *p)
{
	if (p->child)
		complain("the other process ended before its time");
	else
		complain("side %c did not answer within %g s: start it in the other VM with --role %c, "
			 "or it has ended",
			 p->role == 'a' ? 'b' : 'a', p->timeout, p->role == 'a' ? 'b' : 'a');
	return false;
}

bool peer_waiting_slow(const struct peer *p, struct peer_wait *w)
{
	double t = now();

	if (w->end == 0)
		w->end = t + p->timeout;
	/* If both sides share one CPU, the other needs it. */
	sched_yield();
	if (p->child) {
		siginfo_t info = { 0 };

		/*
		 * A child that has ended may have answered before: the caller polls once more after the end was seen,
		 * regardless of the elapsed time.
		 */
		if (w->gone)
			return false;
		if (!waitid(P_PID, (id_t) p->child, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
			w->gone = true;
	}
	return t < w->end;
}

/* See the comment at the head of peer.h. */
static bool meet(struct peer *p)
{
	struct peer_wait w = { 0 };
	uint64_t nonce = 0;

	while (!nonce)
		if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t) sizeof(nonce))
			return false;
	atomic_store(&p->mine->nonce, nonce);
	for (;;) {
		uint64_t theirs = atomic_load(&p->theirs->nonce);

		if (theirs) {
			atomic_store(&p->mine->echo, theirs);
			/*
			 * The number may be that of an earlier run, and the other side may have started in between:
			 * it writes its number before it repeats this side's, so its number is read again.
			 */
			if (atomic_load(&p->theirs->echo) == nonce && atomic_load(&p->theirs->nonce) == theirs)
				return true;
		}
		if (!peer_waiting(p, &w))
			return peer_lost(p);
	}
}

bool peer_start(struct peer *p, struct region *r, struct read_times *t, const struct peer_options *o,
		const uint64_t parameters[PEER_PARAMETERS], void (*prepare)(struct peer *))
{
	const char *path = o->region ? o->region : o->fork ? "/dev/shm" : NM_REGION_DEVICE;
	struct peer_words *words;

	memset(p, 0, sizeof(*p));
	p->role = o->role;
	p->timeout = o->timeout;
	if (!(o->fork && !o->region ? region_temporary(r, path, TEMPORARY_BYTES) : region_open(r, path)))
		return false;
	if (!region_cached(r, path, t)) {
		region_close(r);
		return false;
	}
	if (r->header.scratch_bytes < 64 << 10) {
		complain("%s: its scratch area, %llu bytes, is below 64 KiB", path,
			 (unsigned long long) r->header.scratch_bytes);
		region_close(r);
		return false;
	}
	if (o->fork) {
		pid_t parent = getpid();

		p->role = 'a';
		fflush(stdout);
		p->child = fork();
		if (p->child < 0) {
			complain("cannot fork: %s", strerror(errno));
			region_close(r);
			return false;
		}
		if (!p->child) {
			p->role = 'b';
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
		}
	}
	/* The words of both sides are in the area's first page. */
	words = (struct peer_words *) r->scratch;
	p->mine = words + (p->role == 'b');
	p->theirs = words + (p->role == 'a');
	p->area = r->scratch + 4096;
	p->area_bytes = r->header.scratch_bytes - 4096;

	atomic_store(&p->mine->nonce, 0);
	atomic_store(&p->mine->echo, 0);
	atomic_store(&p->mine->base, atomic_load(&p->mine->phase));
	for (int i = 0; i < PEER_PARAMETERS; i++)
		atomic_store(&p->mine->parameters[i], p->role == 'a' ? parameters[i] : 0);
	prepare(p);
	if (pin(o->cpus[o->fork && p->role == 'b']) && meet(p))
		return true;
	peer_end(p, r, 1);
	return false;
}

int peer_end(struct peer *p, struct region *r, int status)
{
	if (p->child > 0) {
		int wstatus = 0;

		/* It follows this side, which has reached its end. */
		if (status)
			kill(p->child, SIGKILL);
		if (waitpid(p->child, &wstatus, 0) < 0 || (!status && wstatus))
			status = 1;
	}
	region_close(r);
	return status;
}

uint64_t peer_parameter(const struct peer *p, int i)
{
	return atomic_load(&(p->role == 'a' ? p->mine : p->theirs)->parameters[i]);
}

bool peer_barrier(struct peer *p)
{
	p->phase++;
	atomic_store_explicit(&p->mine->phase, atomic_load(&p->mine->base) + p->phase, memory_order_release);
	return peer_await(p, &p->theirs->phase, atomic_load(&p->theirs->base) + p->phase);
}
