/*
 * The layout area of a region, used by the provider ivshmem: the ranks, the rings between every two ranks, and the
 * buffers for large messages. docs/fabric-design.md describes it; internal/region/layout.go has the same constants.
 * All numbers are little-endian.
 *
 * An area of zeroes is a valid, empty layout. No formatting is needed: the first rank chooses the geometry with one
 * compare-and-swap. Everything else follows from the geometry and the area's size.
 *
 * All data read from the area was written by another process. No value is used as an offset, index or length before
 * it was copied and checked.
 */
#ifndef NEARMETAL_LAYOUT_H
#define NEARMETAL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define NM_LAYOUT_TYPE		 1 /* in the region's header: made by a provider itself */
#define NM_LAYOUT_VERSION	 7
#define NM_LAYOUT_MAX_SLOTS	 1024
#define NM_LAYOUT_MIN_SLOTS	 4
#define NM_LAYOUT_LINE		 64   /* bytes: a cache line, and a ring's slot */
#define NM_LAYOUT_BOUNCE_BYTES	 8192 /* the smallest buffer for a fragment of a large message */
#define NM_LAYOUT_BOUNCE_LARGEST 32768
#define NM_LAYOUT_POOL_MOST	 (3ULL << 20) /* bytes of such buffers per rank: measurements/fabric.md */
#define NM_LAYOUT_RING_MIN	 8	      /* lines in the smallest ring */
#define NM_LAYOUT_RING_MAX	 256	      /* lines in the largest */
#define NM_LAYOUT_RING_CTL	 128	      /* bytes before a ring's first line */
#define NM_LAYOUT_MR_COUNT	 63	      /* memory regions that a rank exposes to others */
#define NM_LAYOUT_PAGE		 4096

/*
 * The geometry word: 0 if no rank has attached yet, else version << 56 | log2(slots) << 48 | area bytes / 4096.
 */
#define NM_LAYOUT_GEOMETRY(slots_log2, area_pages) \
	((uint64_t) NM_LAYOUT_VERSION << 56 | (uint64_t) (slots_log2) << 48 | (uint64_t) (area_pages))

/* The first page of the layout area. */
struct nm_layout_head {
	uint64_t geometry;
	uint64_t job;  /* hash of the job's name, 0: none was set */
	uint32_t next; /* where the search for a free slot begins */
	uint32_t reserved[11];
};

/* States of a slot, the low 2 bits of nm_slot.owner; the epoch is above. */
#define NM_SLOT_FREE		    0
#define NM_SLOT_CLAIMED		    1 /* being set up */
#define NM_SLOT_LIVE		    2
#define NM_SLOT_OWNER(epoch, state) ((uint64_t) (epoch) << 2 | (state))

/* A rank's entry in the slot table. */
struct nm_slot {
	/* written by the owner only, except for the claim */
	uint64_t owner;	 /* NM_SLOT_OWNER */
	uint64_t kernel; /* hash of boot id and PID namespace */
	uint64_t pid;	 /* in that namespace */
	uint64_t secret; /* address of a struct nm_proof in the process */
	uint64_t proof;	 /* SipHash of slot and epoch with its key */
	uint64_t name;	 /* hash of a service name, 0: none */
	uint64_t pad0[2];
	/* written by the owner's heartbeat */
	uint64_t beat;
	uint64_t pad1[7];
	/* written by senders: byte (sender % 64) */
	uint8_t activity[64];
	uint32_t asleep;  /* 1: written by the owner; 0: by the rank that wakes it */
	uint32_t unwoken; /* 1: written by a sender that cannot wake it */
	uint32_t pad2[14];
};

_Static_assert(sizeof(struct nm_slot) == 256, "four lines");

/*
 * The proof is in the owner's own memory, in its ledger (fabric/region/ledger.h). Another VM may have sent bytes like
 * these in a message: they prove nothing until the kernel reports who listens at their key's name
 * (fabric/region/identity.h).
 */
struct nm_proof {
	uint64_t magic;
	uint32_t slot;
	uint32_t epoch;
	uint8_t key[16]; /* random */
	int32_t ledger;	 /* descriptor of the process's ledger (fabric/region/ledger.h), -1: none */
	uint32_t reserved;
};

#define NM_PROOF_MAGIC 0x7f0a9e3d52c8b642ULL

/*
 * conn[receiver][sender], written by the sender: the place of its ring to the receiver. 0: none. ring: offset in the
 * sender's area in lines, + 1.
 */
struct nm_conn {
	uint32_t ring;
	uint8_t lines_log2;
	uint8_t protocol; /* NM_PROTOCOL_*: the protocol of the ring's messages */
	uint16_t check;	  /* low bits of the receiver's epoch */
	uint32_t lap0;	  /* lap of the ring's first round */
	uint32_t epoch;	  /* the sender's; if it differs, the entry is stale */
};

_Static_assert(sizeof(struct nm_conn) == 16, "two words");

/* A rank reads rings of its own protocol only. */
#define NM_PROTOCOL_OFI 0 /* the libfabric provider's */
#define NM_PROTOCOL_UCX 1 /* the UCX transport's */

/*
 * Two lines that precede a ring, written by the receiver only.
 */
struct nm_ring_ctl {
	uint64_t tail; /* lines read so far */
	/*
	 * cycles for reading 1 KiB of a bounce buffer, a hint: [0] if written cached, [1] if
	 * non-temporally; 0: not known
	 */
	uint32_t cost[2];
	uint64_t pad0[6];
	uint32_t polled; /* 1: the receiver polls this ring in each call */
	uint32_t pad1;
	uint64_t pad2[7];
};

_Static_assert(sizeof(struct nm_ring_ctl) == NM_LAYOUT_RING_CTL, "two lines");

/*
 * A ring's line: the word is written last and read first. Further lines of the same message start with a word of 0,
 * so that no payload can be mistaken for a message. lap has its top bit set, and differs in each round.
 */
struct nm_line {
	uint32_t lap;
	uint8_t op;
	uint8_t flags;
	uint16_t len; /* bytes of payload in this and further lines */
	uint64_t tag;
	uint8_t payload[48];
};

_Static_assert(sizeof(struct nm_line) == NM_LAYOUT_LINE, "one line");

#define NM_LINE_FIRST_BYTES 48 /* of payload in a message's first line */
#define NM_LINE_MORE_BYTES  56 /* and in each further line, after the word */

/* A memory region that its owner permits others to access directly. */
struct nm_mr {
	uint64_t state; /* odd: being changed; 0: never used */
	uint64_t key;
	uint64_t base;	 /* offset in the region, or address in the owner */
	uint64_t len;	 /* bytes */
	uint64_t origin; /* the owner's address of the first byte: 0 or its virtual address */
	uint32_t access; /* NM_MR_* */
	uint32_t valid;
	uint64_t check; /* SipHash of the above, slot and epoch with the key */
	uint64_t pad;
};

_Static_assert(sizeof(struct nm_mr) == NM_LAYOUT_LINE, "one line");

#define NM_MR_READ   1
#define NM_MR_WRITE  2
#define NM_MR_REGION 4 /* base is an offset in the region */

/* The offsets of all parts, from the layout area's first byte. */
struct nm_layout_geometry {
	uint32_t slots;
	uint32_t bounces;      /* of bounce_bytes each: a rank's pool */
	uint32_t bounce_bytes; /* maximum size of a fragment */
	uint64_t slot_table;
	uint64_t conn_table;
	uint64_t mr_table;
	uint64_t areas;
	uint64_t area_bytes; /* per rank: its bounce buffers, then its rings */
	uint64_t heap;	     /* offset of the rings in an area */
};

static inline uint64_t nm_layout_fixed(uint32_t slots)
{
	return NM_LAYOUT_PAGE + slots * (uint64_t) sizeof(struct nm_slot) +
	       (uint64_t) slots * slots * sizeof(struct nm_conn) +
	       slots * (uint64_t) (NM_LAYOUT_MR_COUNT + 1) * sizeof(struct nm_mr);
}

/* The minimum size of an area: a smallest ring to each rank, and some bounce buffers. */
static inline uint64_t nm_layout_least_area(uint32_t slots)
{
	uint64_t rings = (uint64_t) slots * (NM_LAYOUT_RING_CTL + NM_LAYOUT_RING_MIN * NM_LAYOUT_LINE);
	return rings + 4 * NM_LAYOUT_BOUNCE_BYTES;
}

/*
 * Returns the geometry word for a layout area of bytes and at most want slots (0: a sensible number). 0: the area is
 * too small.
 */
static inline uint64_t nm_layout_choose(uint64_t bytes, uint32_t want)
{
	int log2;

	for (log2 = 10; log2 >= 2; log2--) {
		uint32_t slots = 1U << log2;
		uint64_t fixed = nm_layout_fixed(slots), area;

		if (want && slots > NM_LAYOUT_MIN_SLOTS && slots / 2 >= want)
			continue;
		if (fixed >= bytes)
			continue;
		area = (bytes - fixed) / slots / NM_LAYOUT_PAGE * NM_LAYOUT_PAGE;
		/* Many small areas are worth less than fewer large ones. */
		if (!want && slots > 16 && area < (1U << 20))
			continue;
		if (area < nm_layout_least_area(slots))
			continue;
		if (area / NM_LAYOUT_PAGE >> 32)
			area = (uint64_t) UINT32_MAX * NM_LAYOUT_PAGE;
		return NM_LAYOUT_GEOMETRY(log2, area / NM_LAYOUT_PAGE);
	}
	return 0;
}

/*
 * Decodes a geometry word, for a layout area of bytes. Returns NULL, or the fault.
 */
static inline const char *nm_layout_geometry(uint64_t word, uint64_t bytes, struct nm_layout_geometry *g)
{
	uint64_t fixed, rings, pool;
	unsigned int log2 = (word >> 48) & 0xff;

	if (word >> 56 != NM_LAYOUT_VERSION)
		return "a layout of another version";
	if (log2 < 2 || log2 > 10)
		return "the layout's number of slots is out of range";
	g->slots = 1U << log2;
	g->area_bytes = (word & 0xffffffffffffULL) * NM_LAYOUT_PAGE;
	fixed = nm_layout_fixed(g->slots);
	if (fixed > bytes || g->area_bytes > (bytes - fixed) / g->slots ||
	    g->area_bytes < nm_layout_least_area(g->slots))
		return "the layout does not fit its area";
	g->slot_table = NM_LAYOUT_PAGE;
	g->conn_table = g->slot_table + g->slots * sizeof(struct nm_slot);
	g->mr_table = g->conn_table + (uint64_t) g->slots * g->slots * sizeof(struct nm_conn);
	g->areas = fixed;
	rings = (uint64_t) g->slots * (NM_LAYOUT_RING_CTL + NM_LAYOUT_RING_MIN * NM_LAYOUT_LINE);
	pool = g->area_bytes / 2;
	if (pool > g->area_bytes - rings)
		pool = g->area_bytes - rings;
	if (pool > NM_LAYOUT_POOL_MOST)
		pool = NM_LAYOUT_POOL_MOST;
	/* Larger buffers are faster, but only if there are many. */
	g->bounce_bytes = NM_LAYOUT_BOUNCE_BYTES;
	while (g->bounce_bytes < NM_LAYOUT_BOUNCE_LARGEST && pool / g->bounce_bytes >= 64)
		g->bounce_bytes *= 2;
	g->bounces = (uint32_t) (pool / g->bounce_bytes);
	g->heap = (uint64_t) g->bounces * g->bounce_bytes;
	return NULL;
}

#endif /* NEARMETAL_LAYOUT_H */
