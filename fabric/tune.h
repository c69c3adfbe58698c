/*
 * What the provider is tuned by: every constant that changes its speed but no format and no limit.
 * Each has its unit and the measurement that it rests on. "Not measured alone": the value was chosen
 * with the code around it, and no figure of its own is kept. docs/fabric-measurements.md has the
 * machines and conditions. A test may read these; none may be set but by the parameters of param.h.
 */
#ifndef IVS_TUNE_H
#define IVS_TUNE_H

#include <stddef.h>
#include <stdint.h>

/* Polling: which rings are polled, and how often. */
#define IVS_HOT_MAX		8	/* rings polled in each call; not measured alone */
#define IVS_TURN_TICKS		64	/* calls for each further slot polled in turn; a power of two, 256 at most; not measured alone */
#define IVS_COOL_TICKS		512	/* calls between two checks for idle rings; not measured alone */
#define IVS_IDLE_TICKS		8192	/* calls without a message after which a ring is idle; not measured alone */
#define IVS_CHECK_TICKS		256	/* calls between two checks of peers: some ns each, or ms where each yields; not measured alone */
#define IVS_CHECK_MS		100	/* ms between two checks of peers at least; not measured alone */

/* A stream of messages: the receiver leaves the ring alone between two polls. */
#define IVS_RUN_LENGTH		4	/* messages without a reply that make a stream; not measured alone */
#define IVS_QUIET_CYCLES	600	/* cycles, a fifth to a third of a microsecond; not measured alone */
#define IVS_EAGER_RECEIVE_MAX	64	/* messages received in one call before other rings are polled; not measured alone */
#define IVS_AHEAD_LINES		16	/* lines of a stream fetched before they are read; not measured alone */
#define IVS_FETCHED_LINES	4	/* lines of one message, fetched while its receiver polls; not measured alone */

/* The sender's side of a stream. */
#define IVS_ROW_LINES		8	/* lines sent without a reply, after which more is expected; not measured alone */
#define IVS_OWN_LINES		8	/* lines: how far ahead they are fetched for writing; not measured alone */

/* Spinning for the reply within one call: an MPI's own loop polls every 30 ns. */
#define IVS_SPIN_POLLS		32	/* polls after a message sent: just under a microsecond */
#define IVS_SPIN_CALL		8	/* polls in one call, a divisor of that; not measured alone */
#define IVS_SPIN_MISSES		4	/* replies in a row that did not come, before spinning stops; not measured alone */
#define IVS_SPIN_PROBE		16	/* messages: one of them is spun for after that; not measured alone */
#define IVS_RELAX_CYCLES	60	/* cycles between two polls: 15 to 30 ns */
#define IVS_PAUSE_SHORT		100	/* cycles: `pause` takes 40 to 65 on many CPUs, 140 and more on Intel's since Skylake */
#define IVS_PAUSE_COUNT		8	/* pauses measured at once; not measured alone */
#define IVS_PAUSE_TURNS		8	/* such measurements, of which the least counts; not measured alone */

/* Copies. */
#define IVS_COPY_SMALL		256	/* bytes up to which a copy is made in line; not measured alone */
#define IVS_STRING_MIN		8192	/* bytes; below, string instructions take too long to start; not measured alone */
#define IVS_PUT_MIN		16384	/* bytes; the same where nobody waits for the copy; not measured alone */
#define IVS_OWN_MAX		8192	/* bytes of a copy fetched for writing before it: a sixth of a core's own cache; not measured alone */

/*
 * Bounce buffers, near pool and far pool. Far ones have 1.15 to 1.3 times the bandwidth from 256 KiB on, and 0.9
 * times it for messages of 16 to 64 KiB (cores with 2 MiB of cache each).
 */
#define IVS_NEAR_BYTES		((size_t) 2 << 20)	/* bytes of the near pool; not measured alone */
#define IVS_FAR_MIN		(128 << 10)	/* bytes of a message behind others, from which it takes far ones */
#define IVS_FAR_ALONE		(4 << 20)	/* bytes of a message alone, from which it takes far ones */
#define IVS_PUMP_MAX		4	/* pieces sent before something else gets its turn; not measured alone */

/*
 * Non-temporal copies, timed for each peer: 15 to 18 GB/s in place of 7 between cores without a common
 * cache, half of the speed between two threads of a core (Zen 3).
 */
#define IVS_NT_MIN		4096	/* bytes from which a piece may be copied so; not measured alone */
#define IVS_NT_LEARN		16	/* copies at first, by turns in either way; not measured alone */
#define IVS_NT_PROBE		64	/* copies: two of them are timed after that, one in each way; not measured alone */
#define IVS_NT_MARGIN		8	/* the other way must be faster by an eighth, so that they do not alternate; not measured alone */
#define IVS_COST_LAST		4	/* timings of which the least counts; not measured alone */

/*
 * The rendezvous read: one copy by the kernel in place of two, behind a system call. It is faster from 8 KiB on (a
 * Xeon with 2 MiB of cache a core), or hardly below 256 KiB (Zen 3: 8 KiB take 1.4 us by two copies, 3.5 so).
 */
#define IVS_CMA_MIN		((size_t) 8 << 10)	/* bytes: FI_IVSHMEM_CMA_MIN */
#define IVS_CMA_BUSY_MIN	((size_t) 64 << 10)	/* bytes from which it is used while others are on the way; not measured alone */
#define IVS_CMA_POLICY_SURE	((size_t) 256 << 10)	/* bytes from which it is always used (28 to 31 GB/s in a row; by both ends 17 to 20) */
#define IVS_CMA_POLICY_CLASSES	5	/* of sizes: powers of two below that, 8 KiB and less the first */
#define IVS_CMA_POLICY_LEARN	16	/* messages at first, by turns in either way; not measured alone */
#define IVS_CMA_POLICY_UNKNOWN	2048	/* messages without a timing, after which it is used; not measured alone */
#define IVS_CMA_POLICY_MARGIN	256	/* as IVS_NT_MARGIN: hardly any, since one of many is timed only; not measured alone */
#define IVS_CMA_POLICY_PROBE	256	/* messages: one of them goes the other way; not measured alone */

/* The cooperative copy: pieces of half of a message, one for each end. */
#define IVS_COOP_MIN		((size_t) 64 << 10)	/* bytes: FI_IVSHMEM_CMA_COOP; not measured alone */
#define IVS_COOP_PIECE_MIN	((size_t) 32 << 10)	/* bytes; not measured alone */
#define IVS_COOP_PIECE_MAX	((size_t) 256 << 10)	/* bytes: what the other end may be waited for; not measured alone */
#define IVS_COOP_HALVED		4	/* pieces up to which each end copies its half: 25 to 31 GB/s in place of 14 to 17 (256 KiB, in a row) */
#define IVS_COOP_HALF_CYCLES	((uint64_t) 1 << 20)	/* cycles of waiting for the other half, at most: half a millisecond; not measured alone */

/* Before a receive is posted. */
#define IVS_WINDOW		((size_t) 64 << 10)	/* bytes: FI_IVSHMEM_WINDOW; not measured alone */

/* Places that were found before. */
#define IVS_TARGETS		8	/* places of peers' registered memory; a power of two; not measured alone */
#define IVS_MR_BUCKETS		1024	/* of registered memory; a power of two; not measured alone */

/* The core provider. */
#define IVS_CORE_IDLE_TICKS	1024	/* calls between two polls of it while no peer is reached by it; not measured alone */
#define IVS_CORE_BUSY_TICKS	8	/* the same while one is, and the region is used, too; not measured alone */
#define IVS_CORE_BUFFERS	64	/* each for sending and for receiving, an endpoint; not measured alone */
#define IVS_CORE_UIDS		1024	/* buckets of peers; a power of two; not measured alone */
#define IVS_CORE_BLOCK		32	/* requests allocated at once; not measured alone */
#define IVS_CORE_PEEKS		4	/* polls before FI_PEEK reports that there is nothing; not measured alone */

/* Yielding the CPU, and sleeping. */
#define IVS_YIELD_AFTER		1024	/* empty reads in a row before the first yield, some 50 us; not measured alone */
#define IVS_YIELD_EACH		64	/* empty reads between two yields; not measured alone */
#define IVS_EQ_YIELD_NS		100000	/* ns between two polls of an event queue without a descriptor; not measured alone */
#define IVS_WAIT_ROUNDS		2000	/* polls before the first sleep, some 100 us; not measured alone */
#define IVS_WAIT_FIRST		50000	/* ns of the first sleep: far longer than a store takes to be seen; not measured alone */
#define IVS_WAIT_SHORT_FIRST	20000	/* ns of the shortest sleep of a rank that cannot be woken; not measured alone */
#define IVS_WAIT_SHORT_MOST	2000000	/* ns of its longest; not measured alone */
#define IVS_WAIT_SHORT_PART	8	/* it sleeps this part of the time waited so far; not measured alone */
#define IVS_DOORBELL_DRAIN	16	/* bytes taken off a doorbell at once: a socket holds some 10; not measured alone */

/* Heartbeats. */
#define IVS_BEAT_MS		250	/* ms between two heartbeats; not measured alone */
#define IVS_CLAIM_MS		50	/* ms between two searches for a free slot; not measured alone */
#define IVS_SAME_KERNEL_MS	2000	/* ms without a heartbeat before a missing process counts; not measured alone */

#endif /* IVS_TUNE_H */
