/*
 * What the provider is tuned by: every constant that changes its speed but no format and no limit.
 * Each has its unit, and the measurement or the rule that it rests on. A pair of ratios in brackets is what half and
 * twice the value came to beside it: the median of all figures of `go run ./test/bench/fabric -only tune`, above 1 is
 * faster. The same provider again had 1.01 and 1.02 there, and values that the figures do not depend on 0.91: below that
 * is a loss, and no figure came above 1.03 but those of a start and of puts, whose noise stands beside them.
 * docs/fabric-measurements.md has the machine and its limits. A test may read these; none may be set but by the parameters
 * of param.h.
 */
#ifndef IVS_TUNE_H
#define IVS_TUNE_H

#include <stddef.h>
#include <stdint.h>

/* Polling: which rings are polled, and how often. */
#define IVS_HOT_MAX		8	/* rings polled in each call: a bound on the lines that a call without a message reads */
#define IVS_TURN_TICKS		64	/* calls for each further slot polled in turn; a power of two, 256 at most (1.01, 1.00) */
#define IVS_IDLE_TICKS		8192	/* calls without a message after which a ring is idle (1.01, 1.01) */
#define IVS_CHECK_TICKS		256	/* calls between two checks of peers and of idle rings, a multiple of IVS_TURN_TICKS (1.00, 0.99) */

/* A stream of messages: the receiver leaves the ring alone between two polls. */
#define IVS_RUN_LENGTH		4	/* messages without a reply that make a stream (0.92, 1.00) */
#define IVS_QUIET_CYCLES	600	/* cycles, a fifth to a third of a microsecond (0.98, 0.96) */
#define IVS_QUIET_LONG_CYCLES	5000	/* cycles, 1 to 2 us, after a message with a bounce buffer: 4 KiB in a row had 21.7 GB/s, 21.2 with 2400 and 9.5 with 600; by UCX 23.0, 21.9 and 17.3 (Zen 4, near cores, medians of 5 to 8 runs by turns) */
#define IVS_APART_MAX		16384	/* bytes of a message with a bounce buffer for which the two ends keep apart: that wait, and a page between the messages of a ping-pong. So 4 KiB take 0.34 us in place of 0.56, 16 KiB 1.09 in place of 1.23 (as before, medians of 12). With that wait for all lengths 1 MiB took 3 to 10 % longer */
#define IVS_EAGER_RECEIVE_MAX	64	/* messages received in one call before other rings are polled (1.00, 0.99) */
#define IVS_AHEAD_LINES		16	/* lines of a stream fetched before they are read (0.98, 1.01) */
#define IVS_OWN_LINES		8	/* lines sent without a reply, after which as many are fetched ahead for writing (1.00, 0.91) */

/* Spinning for the reply within one call: an MPI's own loop polls every 30 ns. */
#define IVS_SPIN_POLLS		32	/* polls after a message sent, just under a microsecond (1.00, 1.00) */
#define IVS_SPIN_CALL		8	/* polls in one call (1.01, 0.97) */
#define IVS_SPIN_MISSES		4	/* replies in a row that did not come, before spinning stops (0.96, 0.99) */
#define IVS_SPIN_PROBE		16	/* messages, of which one is spun for after that (1.03, 1.02) */
#define IVS_RELAX_CYCLES	60	/* cycles between two polls: 15 to 30 ns */
#define IVS_PAUSE_SHORT		100	/* cycles: `pause` takes 40 to 65 on many CPUs, 140 and more on Intel's since Skylake */

/*
 * Copies. Those by string instructions are Intel's, and AMD's from Zen 5 on: no other CPU comes to the values for them. A put
 * of 4 KiB had 0.98 of memcpy's bandwidth where its lines were fetched for writing, and 0.80 by string instructions, on a
 * Xeon (X in docs/fabric-measurements.md). Half and twice the values were not compared there.
 */
#define IVS_COPY_SMALL		256	/* bytes up to which a copy is made in line (1.01, 0.93) */
#define IVS_STRING_MIN		8192	/* bytes; below, string instructions take too long to start: glibc's own value with AVX */
#define IVS_STRING_MIN_AMD	1024	/* bytes; the same for AMD's: 2 KiB took 0.54 us in place of 0.79, and 64 KiB in a row had 1.26 times the bandwidth (UCX, Zen 5, cores without a common cache, medians of 4 runs) */
#define IVS_STRING_AMD_FAMILY	26	/* of AMD's CPUs, from which on they are used: Zen 5 */
#define IVS_PUT_MIN		16384	/* bytes; the same where nobody waits for the copy: glibc's own value with AVX-512 */
#define IVS_PUT_MIN_AMD		8192	/* bytes; the same for AMD's: puts of 4 KiB in a row were slower by string instructions in four of four runs, and those of 32 KiB had 0.99 to 1.03 of memcpy's bandwidth in place of 0.89 to 0.92 (Zen 5, three runs) */
#define IVS_OWN_MAX		8192	/* bytes of a copy fetched for writing before it: a sixth of a core's own cache */

/* Bounce buffers (NM_LAYOUT_POOL_MOST is how much they go round). */
#define IVS_POOL_FIRST		((size_t) 256 << 10)	/* bytes that they go round at first, and twice as many each time: a new page takes some 5 us */
#define IVS_POOL_TURNS		64	/* times round, before they are more: new pages are few among what is sent */
#define IVS_PUMP_MAX		4	/* pieces sent before something else gets its turn (0.96, 1.00) */

/*
 * Non-temporal copies, timed for each peer: 15 to 18 GB/s in place of 7 between cores without a common
 * cache, half of the speed between two threads of a core (Zen 3).
 */
#define IVS_NT_MIN		4096	/* bytes from which a piece may be copied so (0.97, 0.67) */
#define IVS_NT_PROBE		64	/* copies, of which two are timed after that, one in each way (0.92, 0.95) */
#define IVS_NT_MARGIN		8	/* the other way must be faster by an eighth, so that they do not alternate (0.88, 0.99) */

/* The learner (object/adapt.h). */
#define IVS_COST_LAST		4	/* timings of which the least counts: one of them may be disturbed, and one new to the caches (1.01, 1.00) */
#define IVS_ADAPT_LEARN		(4 * IVS_COST_LAST)	/* times at first, by turns: each way is timed twice as often as counts (0.91, 0.99) */

/*
 * The rendezvous read: one copy by the kernel in place of two, behind a system call. It is faster from 8 KiB on (a
 * Xeon with 2 MiB of cache a core), or hardly below 256 KiB (Zen 3: 8 KiB take 1.4 us by two copies, 3.5 so).
 */
#define IVS_CMA_MIN		((size_t) 8 << 10)	/* bytes: FI_IVSHMEM_CMA_MIN */
#define IVS_CMA_BUSY_MIN	((size_t) 64 << 10)	/* bytes from which it is used while others are on the way (0.96, 0.96) */
#define IVS_CMA_POLICY_SURE	((size_t) 256 << 10)	/* bytes from which it is always used (28 to 31 GB/s in a row; by both ends 17 to 20) */
#define IVS_CMA_POLICY_CLASSES	5	/* of sizes: powers of two below that, 8 KiB and less the first */
#define IVS_CMA_POLICY_PROBE	256	/* messages, of which one goes the other way; a way must be faster by one in as many (1.00, 0.99) */

/* The cooperative copy: pieces of half of a message, one for each end. */
#define IVS_COOP_MIN		((size_t) 64 << 10)	/* bytes: FI_IVSHMEM_CMA_COOP (1.00, 1.01) */
#define IVS_COOP_PIECE_MIN	(IVS_COOP_MIN / 2)	/* bytes: half of the least such message, a piece for each end (0.97, 0.95) */
#define IVS_COOP_PIECE_MAX	((size_t) 256 << 10)	/* bytes: what the other end may be waited for (0.99, 0.98) */
#define IVS_COOP_HALVED		4	/* pieces up to which each end copies its half: 25 to 31 GB/s in place of 14 to 17 (256 KiB, in a row) (1.01, 1.00) */

/* Before a receive is posted. */
#define IVS_WINDOW		((size_t) 64 << 10)	/* bytes: FI_IVSHMEM_WINDOW (0.94, 0.89) */

/* Places of peers' registered memory that were found before. */
#define IVS_TARGETS		8	/* a power of two: 512 bytes of an endpoint, for programs that write to a few windows in turns (puts to one window: 1.07, 1.00; the same again: 1.06) */

/*
 * The core provider. Polling it is a system call. Of that a call of ours takes a 1,024th while no peer is reached by it,
 * and an eighth while one is.
 */
#define IVS_CORE_IDLE_TICKS	1024	/* calls between two polls of it while no peer is reached by it */
#define IVS_CORE_BUSY_TICKS	8	/* the same while one is, and the region is used, too */
#define IVS_CORE_NEXT_TICKS	64	/* calls, after a message came by it, that all poll it: half a ping-pong of 8 B takes 7.33 us in place of 7.80, as in each call (bench-hosts' part count) */
#define IVS_CORE_READ_MIN	((size_t) 128 << 10)	/* bytes from which a message to another host is read by its receiver. Ping-pongs of 32 and 64 KiB were 2.0 and 2.1, 1.24 and 1.23, 0.97 and 0.85 times as fast as with 32 KiB (three runs); with 64 KiB, 2.0 and 1.4 (soft RoCE, emulated VMs) */
#define IVS_CORE_INJECT_MAX	192	/* bytes, ours included, up to which a message to another host may go without a completion: with the 56 of ofi_rxm it is in line in the request of verbs (FI_VERBS_INLINE_SIZE, 256) */
#define IVS_CORE_GATHER_MIN	512	/* bytes of payload from which the core provider gathers a message that it copies: half a ping-pong takes as many instructions as with a copy of ours at 512, 25 less at 1 KiB, 110 at 4 KiB, 250 at 8 KiB and 520 at 16 KiB (bench-hosts' part count) */
#define IVS_CORE_GATHER_MAX	16640	/* bytes up to which it is asked to: nearmetal's FI_OFI_RXM_BUFFER_SIZE */
#define IVS_CORE_BUFFERS	64	/* each for sending and for receiving, an endpoint: of 32 KiB, so that they are 2 MiB */

/*
 * Yielding the CPU, and sleeping. A rank that cannot be woken sleeps an eighth of the time waited so far: a message waits for
 * it no longer than that. Its shortest sleep is less than Linux's timer slack (50 us), which is
 * added to it, and its longest 2 ms, so that what comes late is not seen much later.
 */
#define IVS_YIELD_AFTER		1024	/* empty reads in a row before the first yield, some 50 us (a start of 64 processes: 1.16, 1.19; the same again: 1.12) */
#define IVS_YIELD_EACH		64	/* empty reads between two yields (likewise: 1.08, 1.15) */
#define IVS_YIELD_CROWDED	16	/* empty reads before a yield, and 1 between two, while others take the CPU; IVS_YIELD_AFTER by a power of two. With 8 an allreduce of 64 KiB takes 380 us, with 16 375, with 1024 1,591 (bench-hosts' part countfour) */
#define IVS_WAIT_ROUNDS		(2 * IVS_YIELD_AFTER)	/* polls before the first sleep: as long again as before a yield */
#define IVS_WAIT_FIRST		50000	/* ns of the first sleep: far longer than a store takes to be seen */
#define IVS_WAIT_SHORT_FIRST	20000	/* ns of the shortest sleep of a rank that cannot be woken */
#define IVS_WAIT_SHORT_MOST	2000000	/* ns of its longest */
#define IVS_WAIT_SHORT_PART	8	/* it sleeps this part of the time waited so far */

#endif /* IVS_TUNE_H */
