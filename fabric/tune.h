/*
 * What the provider is tuned by: every constant that changes its speed, but no format. Each has its unit and its meaning; how
 * they were chosen, and what half and twice a value measures, is in measurements/fabric.md ("Tuning constants"). Those with
 * a parameter's name are its default. `go run ./test/bench/fabric -only tune` reads this file: one constant a line, with a comment.
 */
#ifndef IVS_TUNE_H
#define IVS_TUNE_H

#include <stddef.h>
#include <stdint.h>

/* Polling */
#define IVS_HOT_MAX	8    /* rings polled in each call */
#define IVS_TURN_TICKS	64   /* calls for each further slot polled in turn; a power of two, 256 at most */
#define IVS_IDLE_TICKS	8192 /* calls without a message after which a ring is idle */
#define IVS_CHECK_TICKS 256  /* calls between two checks of peers and of idle rings, a multiple of IVS_TURN_TICKS */
#define IVS_POLL_MAX	64   /* messages handled of one ring before others are polled */

/* Rings */
#define IVS_RING_SHIFT_MIN 3 /* the smallest ring has two to the power of this many lines: the longest message in it */
#define IVS_RING_SHIFT_MAX 8 /* the same of the largest */

/* A stream of messages: the receiver leaves the ring alone between two polls */
#define IVS_RUN_LENGTH	      4	    /* messages without a reply that make a stream */
#define IVS_QUIET_CYCLES      600   /* cycles between two polls of a stream: a fifth to a third of a microsecond */
#define IVS_QUIET_LONG_CYCLES 5000  /* cycles, 1 to 2 us, after a message with a bounce buffer */
#define IVS_APART_MAX	      16384 /* bytes of a message with a bounce buffer for which the two ends keep apart */
#define IVS_EAGER_RECEIVE_MAX 64    /* messages received in one call before other rings are polled */
#define IVS_AHEAD_LINES	      16    /* lines of a stream fetched before they are read */
#define IVS_OWN_LINES	      8	    /* lines sent without a reply, after which as many are fetched ahead for writing */

/* Spinning for the reply within one call: an MPI's own loop polls every 30 ns */
#define IVS_SPIN_POLLS	 32  /* polls after a message sent, just under a microsecond */
#define IVS_SPIN_CALL	 8   /* polls in one call */
#define IVS_SPIN_MISSES	 4   /* replies in a row that did not come, before spinning stops */
#define IVS_SPIN_PROBE	 16  /* messages, of which one is spun for after that */
#define IVS_RELAX_CYCLES 60  /* cycles between two polls: 15 to 30 ns */
#define IVS_PAUSE_SHORT	 100 /* cycles of a `pause` that is short: 40 to 65 on many CPUs, not on Intel's since Skylake */

/* Copies */
#define IVS_COPY_SMALL	      256 /* bytes up to which a copy is made in line */
#define IVS_STRING_MIN	      8192 /* bytes from which Intel's CPUs copy by string instructions: glibc's value with AVX */
#define IVS_STRING_MIN_AMD    1024 /* the same for AMD's */
#define IVS_STRING_AMD_FAMILY 26   /* of AMD's CPUs, from which on they do so: Zen 5 */
#define IVS_PUT_MIN	      16384 /* bytes; as IVS_STRING_MIN where nobody waits for the copy: glibc's value with AVX-512 */
#define IVS_PUT_MIN_AMD	      8192 /* the same for AMD's */
#define IVS_OWN_MAX	      8192 /* bytes of a copy fetched for writing before it: a sixth of a core's own cache */

/* Bounce buffers (NM_LAYOUT_POOL_MOST is how much they go round) */
#define IVS_POOL_FIRST ((size_t) 256 << 10) /* bytes that they go round at first, and twice as many each time */
#define IVS_POOL_TURNS 64 /* times round, before they are more: new pages are few among what is sent */
#define IVS_PUMP_MAX   4  /* pieces sent before something else gets its turn */

/* Non-temporal copies, timed for each peer */
#define IVS_NT_MIN    4096 /* bytes from which a piece may be copied so */
#define IVS_NT_PROBE  64   /* copies, of which two are timed after that, one in each way */
#define IVS_NT_MARGIN 8	   /* the other way must be faster by one in this many, so that they do not alternate */

/* The learner (base/adapt.h) */
#define IVS_COST_LAST	4 /* timings of which the least counts: one may be disturbed, and one new to the caches */
#define IVS_ADAPT_LEARN (4 * IVS_COST_LAST) /* times at first, alternating: each is timed twice as often as counts */

/* The rendezvous read: one copy by the kernel instead of two, behind a system call */
#define IVS_CMA_MIN	       ((size_t) 8 << 10)   /* bytes from which it may be used: FI_IVSHMEM_CMA_MIN */
#define IVS_CMA_BUSY_MIN       ((size_t) 64 << 10)  /* bytes from which it is used while others are on the way */
#define IVS_CMA_POLICY_SURE    ((size_t) 256 << 10) /* bytes from which it is always used */
#define IVS_CMA_POLICY_CLASSES 5		    /* of sizes: powers of two below that, 8 KiB and less the first */
#define IVS_CMA_POLICY_PROBE   256 /* messages, of which one goes the other way; a way must be faster by one in as many */

/* The cooperative copy: each end copies a part */
#define IVS_COOP_MIN	   ((size_t) 64 << 10)	/* bytes from which it is used: FI_IVSHMEM_CMA_COOP */
#define IVS_COOP_PIECE_MIN (IVS_COOP_MIN / 2)	/* bytes: half of the least such message, a piece for each end */
#define IVS_COOP_PIECE_MAX ((size_t) 256 << 10) /* bytes: what the other end may be waited for */
#define IVS_COOP_HALVED	   4			/* pieces up to which each end copies its half */
#define IVS_COOP_WAIT_MAX  (1ULL << 20)		/* cycles of waiting for a sender that may have stopped */

/* Before a receive is posted */
#define IVS_WINDOW ((size_t) 64 << 10) /* bytes of a message sent before it is asked for: FI_IVSHMEM_WINDOW */

/* Places of peers' registered memory that were found before */
#define IVS_TARGETS 8 /* places, a power of two: 512 bytes of an endpoint */

/* The core provider: a poll of it is a system call */
#define IVS_CORE_IDLE_TICKS 1024		 /* calls between two polls of it while no peer is reached by it */
#define IVS_CORE_BUSY_TICKS 8			 /* the same while one is, and the region is used, too */
#define IVS_CORE_NEXT_TICKS 64			 /* calls, after a message came by it, that all poll it */
#define IVS_CORE_READ_MIN   ((size_t) 128 << 10) /* bytes from which a message is read by its receiver */
#define IVS_CORE_INJECT_MAX 192 /* bytes, ours included, that may go without a completion: in line in a verbs request */
#define IVS_CORE_GATHER_MIN 512 /* bytes of payload from which the core provider gathers a message that it copies */
#define IVS_CORE_GATHER_MAX 16640 /* bytes up to which it is asked to: nearmetal's FI_OFI_RXM_BUFFER_SIZE */
#define IVS_CORE_CHAINS	    1024 /* chains of peers by their number on the wire, a power of two: 8 KiB of an endpoint */
#define IVS_CORE_BUFFERS    64 /* each for sending and for receiving, an endpoint: of 32 KiB, so that they are 2 MiB */

/* Yielding the CPU, and sleeping; docs/fabric-design.md has the rules that they follow from */
#define IVS_YIELD_AFTER 1024 /* empty reads in a row before the first yield, some 50 us */
#define IVS_YIELD_EACH	64   /* empty reads between two yields */
#define IVS_YIELD_CROWDED \
	16 /* empty reads before a yield while others take the CPU; IVS_YIELD_AFTER by a power of two */
#define IVS_WAIT_ROUNDS (2 * IVS_YIELD_AFTER) /* polls before the first sleep: as long again as before a yield */
#define IVS_WAIT_FIRST	50000		      /* ns of the first sleep: far longer than a store takes to be seen */
#define IVS_WAIT_SHORT_FIRST \
	20000 /* ns of the shortest sleep of a rank that cannot be woken: below the timer slack, 50 us */
#define IVS_WAIT_SHORT_MOST 2000000 /* ns of its longest, so that what comes late is not seen much later */
#define IVS_WAIT_SHORT_PART 8	    /* it sleeps this part of the time waited so far */

/* The end of an endpoint */
#define IVS_CLOSE_MS	  100  /* ms that closing waits for peers of this host to take what was accepted for sending */
#define IVS_CORE_CLOSE_MS 1000 /* ms that it waits for the core provider to send it */

#endif /* IVS_TUNE_H */
