/*
 * The provider's tuning constants: every constant that changes its speed, except formats. Each has its unit and its
 * meaning; how they were chosen, and the effect of half and twice the value, is in measurements/fabric.md ("Tuning
 * constants"). Those with a parameter's name are its default. `go run ./test/bench/fabric -only tune` reads this file:
 * one constant per line, with a comment.
 */
#ifndef IVS_TUNE_H
#define IVS_TUNE_H

#include <stddef.h>
#include <stdint.h>

/* Polling */
#define IVS_HOT_MAX	8    /* rings polled in each call */
#define IVS_TURN_TICKS	64   /* calls per further slot polled in rotation; a power of two, 256 at most */
#define IVS_IDLE_TICKS	8192 /* calls without a message after which a ring is idle */
#define IVS_CHECK_TICKS 256  /* calls between two checks of peers and of idle rings, a multiple of IVS_TURN_TICKS */
#define IVS_POLL_MAX	64   /* messages of one ring handled before others are polled */

/* Rings */
#define IVS_RING_SHIFT_MIN 3 /* log2 of the lines of the smallest ring, which bounds the longest message in it */
#define IVS_RING_SHIFT_MAX 8 /* log2 of the lines of the largest ring */

/* A stream of messages: the receiver does not touch the ring between two polls */
#define IVS_RUN_LENGTH	      4	    /* messages without a reply that make a stream */
#define IVS_QUIET_CYCLES      600   /* cycles between two polls of a stream: a fifth to a third of a microsecond */
#define IVS_QUIET_LONG_CYCLES 5000  /* cycles, 1 to 2 us, after a message with a bounce buffer */
#define IVS_APART_MAX	      16384 /* bytes of a message with a bounce buffer up to which the ends are kept apart */
#define IVS_EAGER_RECEIVE_MAX 64    /* messages received in one call before other rings are polled */
#define IVS_AHEAD_LINES	      16    /* lines of a stream prefetched before they are read */
#define IVS_OWN_LINES	      8	    /* lines sent without a reply, after which as many are prefetched for writing */

/* Spinning for the reply within one call: an MPI's progress loop polls every 30 ns */
#define IVS_SPIN_POLLS	 32  /* polls after a message sent, just under a microsecond */
#define IVS_SPIN_CALL	 8   /* polls in one call */
#define IVS_SPIN_MISSES	 4   /* consecutive replies that did not arrive, after which spinning stops */
#define IVS_SPIN_PROBE	 16  /* after that, one message of this many is spun for */
#define IVS_RELAX_CYCLES 60  /* cycles between two polls: 15 to 30 ns */
#define IVS_PAUSE_SHORT	 100 /* cycles of a short `pause`: 40 to 65 on many CPUs, not on Intel's since Skylake */

/* Copies */
#define IVS_COPY_SMALL	      256   /* bytes up to which a copy is made inline */
#define IVS_STRING_MIN	      8192  /* bytes from which Intel's CPUs use string instructions: glibc's value with AVX */
#define IVS_STRING_MIN_AMD    1024  /* the same for AMD's CPUs */
#define IVS_STRING_AMD_FAMILY 26    /* first AMD family that copies by string instructions: Zen 5 */
#define IVS_PUT_MIN	      16384 /* bytes; like IVS_STRING_MIN where nobody waits for it: glibc's with AVX-512 */
#define IVS_PUT_MIN_AMD	      8192  /* the same for AMD's CPUs */
#define IVS_OWN_MAX	      8192  /* bytes of a copy prefetched for writing: a sixth of a core's own cache */

/* Bounce buffers (NM_LAYOUT_POOL_MOST bounds the pool) */
#define IVS_POOL_FIRST ((size_t) 256 << 10) /* bytes of the pool used at first, doubled each time */
#define IVS_POOL_TURNS 64 /* rounds through the pool before it grows: new pages are then few among the bytes sent */
#define IVS_PUMP_MAX   4  /* pieces sent before other work */

/* Non-temporal copies, timed for each peer */
#define IVS_NT_MIN    4096 /* bytes from which a piece may be copied non-temporally */
#define IVS_NT_PROBE  64   /* after learning, two copies of this many are timed, one in each way */
#define IVS_NT_MARGIN 8	   /* the other way must be faster by one part in this many, to prevent alternation */

/* The learner (base/adapt.h) */
#define IVS_COST_LAST	4 /* timings of which the least counts: one may be disturbed, and one have cold caches */
#define IVS_ADAPT_LEARN (4 * IVS_COST_LAST) /* first uses, which alternate: each way is timed twice the needed times */

/* The rendezvous read: one copy by the kernel instead of two, after a system call */
#define IVS_CMA_MIN	       ((size_t) 8 << 10)   /* bytes from which it may be used: FI_IVSHMEM_CMA_MIN */
#define IVS_CMA_BUSY_MIN       ((size_t) 64 << 10)  /* bytes from which it is used while other messages are in flight */
#define IVS_CMA_POLICY_SURE    ((size_t) 256 << 10) /* bytes from which it is always used */
#define IVS_CMA_POLICY_CLASSES 5		    /* classes by powers of two below that, the first below 16 KiB */
#define IVS_CMA_POLICY_PROBE   256 /* one message of this many tries the other way; the margin is one part in as many */

/* The cooperative copy: each end copies a part */
#define IVS_COOP_MIN	   ((size_t) 64 << 10)	/* bytes from which it is used: FI_IVSHMEM_CMA_COOP */
#define IVS_COOP_PIECE_MIN (IVS_COOP_MIN / 2)	/* bytes: half of the smallest such message, a piece for each end */
#define IVS_COOP_PIECE_MAX ((size_t) 256 << 10) /* bytes: one end may wait for the other to copy this many */
#define IVS_COOP_HALVED	   4			/* pieces up to which each end copies its half */
#define IVS_COOP_WAIT_MAX  (1ULL << 20)		/* cycles of waiting for a sender that may have stopped */

/* Before a receive is posted */
#define IVS_WINDOW ((size_t) 64 << 10) /* bytes of a message sent before more is requested: FI_IVSHMEM_WINDOW */

/* Known places of peers' registered memory */
#define IVS_TARGETS 8 /* places, a power of two: 512 bytes per endpoint */

/* The core provider: a poll of it is a system call */
#define IVS_CORE_IDLE_TICKS 1024		 /* calls between two polls of it while no peer is reached through it */
#define IVS_CORE_BUSY_TICKS 8			 /* the same while one is, and the region is also used */
#define IVS_CORE_NEXT_TICKS 64			 /* calls that all poll it after a message arrived through it */
#define IVS_CORE_READ_MIN   ((size_t) 128 << 10) /* bytes from which a message is read by its receiver */
#define IVS_CORE_INJECT_MAX 192	  /* bytes, with our head, that need no completion: inline in a verbs request */
#define IVS_CORE_GATHER_MIN 512	  /* bytes of payload from which the core provider gathers a message that it copies */
#define IVS_CORE_GATHER_MAX 16640 /* bytes up to which it is requested to: nearmetal's FI_OFI_RXM_BUFFER_SIZE */
#define IVS_CORE_CHAINS	    1024  /* chains of peers by their id on the wire, a power of two: 8 KiB per endpoint */
#define IVS_CORE_BUFFERS    64	  /* for sending and for receiving each, per endpoint: of 32 KiB, in all 2 MiB each */

/* Yielding the CPU, and sleeping; docs/fabric-design.md explains the rules behind them */
#define IVS_YIELD_AFTER 1024 /* consecutive empty reads before the first yield, some 50 us */
#define IVS_YIELD_EACH	64   /* empty reads between two yields */
#define IVS_YIELD_CROWDED \
	16 /* empty reads before a yield while others use the CPU; IVS_YIELD_AFTER is a power of two times this */
#define IVS_WAIT_ROUNDS (2 * IVS_YIELD_AFTER) /* polls before the first sleep: twice as many as before a yield */
#define IVS_WAIT_FIRST	50000		      /* ns of the first sleep: far longer than a store stays invisible */
#define IVS_WAIT_SHORT_FIRST \
	20000 /* ns of the shortest sleep of a rank that cannot be woken: below the timer slack, 50 us */
#define IVS_WAIT_SHORT_MOST 2000000 /* ns of its longest sleep, so that late messages are not noticed much later */
#define IVS_WAIT_SHORT_PART 8	    /* it sleeps this fraction of the time waited so far */

/* Closing an endpoint */
#define IVS_CLOSE_MS	  100  /* ms that closing waits for peers of this host to receive accepted messages */
#define IVS_CORE_CLOSE_MS 1000 /* ms that it waits for the core provider to send them */

#endif /* IVS_TUNE_H */
