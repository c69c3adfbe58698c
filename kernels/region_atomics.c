/* Checks atomics and fences between two VMs, or two processes, over a region. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "peer.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] = "region_atomics - test atomics and fences over a region\n"
			   "\n"
			   "Usage: region_atomics --role a [OPTION]...     in one VM, and\n"
			   "       region_atomics --role b                 in another, in any order\n"
			   "       region_atomics --fork [OPTION]...       between two processes of this host\n"
			   "\n"
			   "Two sides work on the same words at the same time:\n"
			   "  add     each adds 1 N times by one atomic instruction; the sum must be 2 N\n"
			   "  cas     each adds 1 N times by compare-and-swap; the sum must be 2 N\n"
			   "  fence   a writes x, fences and reads y, while b writes y, fences and reads x; one of\n"
			   "          the two must see what the other wrote (the store-buffer litmus test)\n"
			   "\n"
			   "A VM that QEMU emulates (TCG) with a single vCPU and no more to come gets instructions\n"
			   "without locks and fences, as nobody else seems to be there, and fails all three:\n"
			   "nearmetal starts such VMs with maxcpus of at least 2.\n"
			   "\n"
			   "A pass means something only where the two really ran at once: the line of each test says\n"
			   "how many of a's operations met one of b's (the word had changed since a's last one).\n"
			   "Only the region's scratch area is used, by one pair of these programs at a time.\n"
			   "\n"
			   "Options:\n"
			   "      --operations N        additions a side (default 1000000)\n"
			   "      --rounds N            rounds of the fence test (default 20000)\n" PEER_HELP
			   "The counts are side a's to say; b follows it.\n"
			   "\n"
			   "Output: a line for each test: its name, what was lost or violated, of how many, and how\n"
			   "many met.\n"
			   "\n"
			   "Exit status: 0; 1 if anything is lost or violated, or the region cannot be used, or the\n"
			   "other side is missing; 2 for a wrong option.\n"
			   "\n"
			   "Example:\n"
			   "  region_atomics --fork\n"
			   "  nearmetal exec --vm vm1 region_atomics --role b &\n"
			   "  nearmetal exec --vm vm0 region_atomics --role a\n";

/* The words of the tests, each in a cache line of its own. Only a resets the shared ones. */
struct words {
	_Alignas(CACHE_LINE) _Atomic uint64_t added;
	_Alignas(CACHE_LINE) _Atomic uint64_t swapped;
	_Alignas(CACHE_LINE) _Atomic uint64_t x;
	_Alignas(CACHE_LINE) _Atomic uint64_t y;
	_Alignas(CACHE_LINE) _Atomic uint64_t round_a; /* rounds that a has completed */
	_Alignas(CACHE_LINE) _Atomic uint64_t round_b;
	_Alignas(CACHE_LINE) _Atomic uint64_t b_saw; /* x, in b's last round */
};

enum { OPERATIONS, ROUNDS };
enum { MAX_COUNT = 1000000000 };

struct outcome {
	const char *name;
	uint64_t lost, of, met;
};

static void prepare(struct peer *p)
{
	struct words *w = (struct words *) p->area;

	if (p->role == 'a') {
		atomic_store(&w->added, 0);
		atomic_store(&w->swapped, 0);
		atomic_store(&w->x, 0);
		atomic_store(&w->round_a, 0);
	} else {
		atomic_store(&w->y, 0);
		atomic_store(&w->round_b, 0);
		atomic_store(&w->b_saw, 0);
	}
}

static uint64_t lost(uint64_t sum, uint64_t n)
{
	return sum > 2 * n ? sum - 2 * n : 2 * n - sum;
}

static bool add(struct peer *p, struct words *w, uint64_t n, struct outcome *out)
{
	uint64_t last = 0, met = 0;

	if (!peer_barrier(p))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t v = atomic_fetch_add(&w->added, 1);

		met += v != last;
		last = v + 1;
	}
	if (!peer_barrier(p))
		return false;
	*out = (struct outcome) { "add", lost(atomic_load(&w->added), n), 2 * n, met };
	return true;
}

static bool cas(struct peer *p, struct words *w, uint64_t n, struct outcome *out)
{
	uint64_t last = 0, met = 0;

	if (!peer_barrier(p))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		struct peer_wait wait = { 0 };
		uint64_t v = atomic_load(&w->swapped);

		while (!atomic_compare_exchange_strong(&w->swapped, &v, v + 1))
			if (!peer_waiting(p, &wait)) {
				complain("cas: this side never had its turn in %g s", p->timeout);
				return false;
			}
		met += v != last;
		last = v + 1;
	}
	if (!peer_barrier(p))
		return false;
	*out = (struct outcome) { "cas", lost(atomic_load(&w->swapped), n), 2 * n, met };
	return true;
}

/*
 * In round r each side writes r to its own word and reads the other's. The result is r, or less if it came first; if
 * both came first the fences have failed. b reports its result before a continues.
 */
static bool fence(struct peer *p, struct words *w, uint64_t rounds, struct outcome *out)
{
	uint64_t violations = 0, met = 0;
	bool a = p->role == 'a';
	_Atomic uint64_t *own = a ? &w->x : &w->y, *other = a ? &w->y : &w->x;
	_Atomic uint64_t *done = a ? &w->round_a : &w->round_b, *awaited = a ? &w->round_b : &w->round_a;

	if (!peer_barrier(p))
		return false;
	for (uint64_t r = 1; r <= rounds; r++) {
		uint64_t saw;

		/* Both sides leave here as close together as possible. */
		atomic_store_explicit(done, 2 * r - 1, memory_order_release);
		if (!peer_await(p, awaited, 2 * r - 1))
			return false;

		atomic_store_explicit(own, r, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
		saw = atomic_load_explicit(other, memory_order_relaxed);

		if (!a)
			atomic_store_explicit(&w->b_saw, saw, memory_order_relaxed);
		atomic_store_explicit(done, 2 * r, memory_order_release);
		if (!peer_await(p, awaited, 2 * r))
			return false;
		if (a) {
			bool b_missed = atomic_load_explicit(&w->b_saw, memory_order_relaxed) < r;

			violations += saw < r && b_missed;
			met += saw == r && !b_missed;
		}
	}
	*out = (struct outcome) { "fence", violations, rounds, met };
	return true;
}

static void print(const struct peer_options *o, const struct outcome out[3])
{
	if (o->json) {
		printf("{\"program\":\"region_atomics\",\"emulated\":%s", emulated() ? "true" : "false");
		for (int i = 0; i < 3; i++)
			printf(",\n\"%s\":{\"lost\":%llu,\"of\":%llu,\"met\":%llu}", out[i].name,
			       (unsigned long long) out[i].lost, (unsigned long long) out[i].of,
			       (unsigned long long) out[i].met);
		printf("}\n");
		return;
	}
	printf("# test        lost           of          met\n");
	for (int i = 0; i < 3; i++)
		printf("%-6s %11llu %12llu %12llu\n", out[i].name, (unsigned long long) out[i].lost,
		       (unsigned long long) out[i].of, (unsigned long long) out[i].met);
}

static int run(const struct peer_options *o, const uint64_t parameters[PEER_PARAMETERS])
{
	struct outcome out[3] = { 0 };
	struct read_times times;
	struct region r;
	struct peer p;
	struct words *w;
	uint64_t n, rounds;
	bool ok, sound = true;

	if (!peer_start(&p, &r, &times, o, parameters, prepare))
		return 1;
	w = (struct words *) p.area;
	n = peer_parameter(&p, OPERATIONS);
	rounds = peer_parameter(&p, ROUNDS);
	ok = n && rounds && n <= MAX_COUNT && rounds <= MAX_COUNT;
	if (!ok)
		complain("side %c: the counts that side a asks for are out of range", p.role);
	ok = ok && add(&p, w, n, &out[0]) && cas(&p, w, n, &out[1]) && fence(&p, w, rounds, &out[2]) &&
	     peer_barrier(&p);
	if (ok && p.role == 'a') {
		print(o, out);
		fflush(stdout);
		for (int i = 0; i < 3; i++)
			sound = sound && !out[i].lost;
		if (!sound)
			complain("atomics or fences do not work between the two sides; under TCG give the VMs "
				 "maxcpus of at least 2");
		for (int i = 0; i < 2; i++)
			if (sound && !out[i].met)
				complain("%s: the two sides never met, so that this proves nothing; take more "
					 "--operations",
					 out[i].name);
	}
	return peer_end(&p, &r, ok && sound ? 0 : 1);
}

int main(int argc, char **argv)
{
	enum { OPS = PEER_LAST, RND };
	static const struct option options[] = {
		PEER_OPTIONS,
		{ "operations", required_argument, NULL, OPS },
		{ "rounds", required_argument, NULL, RND },
		{ NULL, 0, NULL, 0 },
	};
	struct peer_options o = { .cpus = { -1, -1 }, .timeout = 60 };
	uint64_t parameters[PEER_PARAMETERS] = { 0 };
	long n = 1000000, rounds = 20000;
	bool ok = true;
	int c, status;

	program_name("region_atomics");
	while (ok && (c = next_option(argc, argv, PEER_SHORT_OPTIONS, options, help, &status)) != -1) {
		switch (c) {
		case OPS: ok = value_count("operations", optarg, 1, MAX_COUNT, &n); break;
		case RND: ok = value_count("rounds", optarg, 1, MAX_COUNT, &rounds); break;
		default: ok = peer_option(&o, c, optarg);
		}
	}
	if (ok && status >= 0)
		return status;
	if (!ok || !peer_options_check(&o))
		return 2;
	parameters[OPERATIONS] = (uint64_t) n;
	parameters[ROUNDS] = (uint64_t) rounds;
	return run(&o, parameters);
}
