/* The transport ivshmem for UCX: its memory domain, interfaces, endpoints and peers. */
#ifndef IVU_UCX_H
#define IVU_UCX_H

#include "object/ep.h"
#include "abi/uct.h"

#define IVU_NAME	"ivshmem"
#define IVU_WINDOW_NAME	"ivshmem_m"	/* of the transport for memory of the region */
#define IVU_DEVICE	"ivshmem0"
#define IVU_WINDOW_DEVICE "ivshmem_m0"
#define IVU_FORMAT	6	/* of the messages and addresses: ranks of another one are not reached */

/* Messages: op in a line of a ring. */
#define IVU_OP_PUT	1	/* struct ivu_put, then data for registered memory */
#define IVU_OP_AM	0x40	/* an active message; the id is in the low 5 bits, the first 8 bytes are in the tag */
#define IVU_OP_AM_LAST	(IVU_OP_AM + IVU_AM_IDS - 1)

/* Flags of an active message in the ring itself: how many of the tag's 8 bytes are not of the message. */
#define IVU_MISSING_SHIFT	2
#define IVU_MISSING_MASK	0x3c

/*
 * Pieces of a bounce buffer each, of the long messages to a rank that shares a cache, which are written in a row. Then each
 * of them gets its turn: messages from or to the same memory find more of it in the caches. 1, 2, 4 and 8 MiB in a row had
 * 35, 34, 32 and 24 GB/s in place of 29, 27, 27 and 18; by turns of 4 pieces 32, 31, 28 and 25, but 256 KiB lost 4 % (Zen 4,
 * medians of 6 to 8 runs). Other ranks gain nothing by it.
 */
#define IVU_PUTS_ROW	16

struct ivu_put {
	uint64_t	addr;		/* of the target's memory */
	uint64_t	key;
};

/* How many times geo.bounce_bytes are written to registered memory at once, in as many pieces: each write costs UCX some time. */
#define IVU_PIECES	4

/* Where the data of an active message is that has a packed bounce buffer: in the message, before its header. */
struct ivu_packed {
	uint32_t	line;		/* of the sender's pool, with which it begins; the receiver may put the header right before it */
	uint32_t	len;		/* bytes */
};

#define IVU_INLINE_MAX	(8 + IVS_INLINE_MAX)	/* bytes of an active message in the ring itself */
#define IVU_IOV_MAX	8
#define IVU_AM_IOV_MAX	16	/* pieces that are stated: UCX and programs keep that many on their stack */
#define IVU_HEADER_MAX	56	/* bytes of a header in the ring before data in a bounce buffer */

/*
 * The active message that holds all of a tagged message, behind 8 bytes of header (UCX's UCP_AM_ID_EAGER_ONLY). What UCX
 * makes of it is the same if its bytes change meanwhile: it reads the header once, and copies the rest.
 */
#define IVU_AM_WHOLE	2
#define IVU_WHOLE_HEADER 8

/*
 * Where in a page a message of UCX's begins that it copies from and to its user's memory, so that behind its header of
 * 8 to 24 bytes the data is as far from a page's begin as no buffer of malloc's is. UCX copies with `rep movsb`. On AMD
 * that is thirty times slower where the destination lies 1 to 31 bytes behind the source, but for whole pages.
 */
#define IVU_PAGE	4096
#define IVU_PACKED_AT	(64 - 8)

struct ivu_device_addr {
	uint64_t	region;		/* its id; 0: none */
	uint64_t	kernel;		/* hash of what makes UCX's own shared memory reach a rank */
};

struct ivu_iface_addr {
	uint32_t	epoch;
	uint16_t	slot;
	uint8_t		format;		/* IVU_FORMAT */
	uint8_t		reserved;
};

#define IVU_MEM_BUCKETS	256

/* Registered memory. */
struct ivu_mem {
	struct ivu_mem	*next;
	uint64_t	key;
	uint8_t		*base;
	size_t		len;
};

struct ivu_memory {
	struct ivu_md	md;
	struct ivs_region *region;
	pthread_mutex_t	lock;		/* of the memory: threads of one context share it */
	struct ivu_mem	*mem[IVU_MEM_BUCKETS];
	uint64_t	last_key;
	uint8_t		secret[16];	/* keys follow from it */
};

/* Copies data into memory registered under key. false: no such memory holds all of it. */
bool ivu_memory_put(struct ivu_memory *m, uint64_t key, uint64_t addr, const void *data, size_t len);

struct ivu_flush {
	struct ivs_list	link;
	uint64_t	mark;		/* ends when the receiver has read up to here */
	struct ivu_completion *comp;
};

struct ivu_peer {
	struct ivs_peer	ivs;
	uint32_t	packed;		/* bytes of the last tagged message that UCX packed for it */
	bool		blocked;	/* not connected, dead, or requests wait: the short way is closed */
	uint64_t	put_mark;	/* tx_head behind the last put, */
	bool		put;		/* if there was one that is not known to be done */
	uint32_t	puts_left;	/* pieces that may be written in this call to progress, */
	uint32_t	puts_tick;	/* of ep->ticks */
	uint32_t	ep_count;
	struct ivs_list	eps;
	struct ivs_list	pending;	/* struct ivu_waiting */
	struct ivs_list	flushes;
};

/* Do the pieces of long messages to it take turns? */
static inline bool ivu_puts_in_turns(const struct ivu_peer *peer)
{
	return !peer->ivs.nt.way.on;
}

/* Another row of pieces may be written. */
static inline void ivu_puts_begin(struct ivu_peer *peer)
{
	peer->puts_left = IVU_PUTS_ROW;
	peer->puts_tick = peer->ivs.ep->ticks;
}

static inline struct ivu_peer *ivu_peer_of(struct ivs_peer *p)
{
	return ivs_entry(p, struct ivu_peer, ivs);
}

struct ivu_ep {
	struct ivu_iface *iface;	/* first, as UCX has it */
	struct ivu_peer	*peer;
	struct ivs_list	link;		/* in peer->eps */
	bool		failed;		/* UCX knows */
};

/* In a pending request's bytes of ours. */
struct ivu_waiting {
	struct ivs_list	link;
	struct ivu_ep	*ep;
};

_Static_assert(sizeof(struct ivu_waiting) <= IVU_PENDING_PRIV, "UCX leaves no more");

struct ivu_iface {
	struct ivu_base_iface base;	/* first, as UCX has it */
	struct ivu_device_addr addr;
	struct ivs_domain domain;
	struct ivs_ep	ep;
	uint8_t		*buffers;
	uint8_t		*packed, *received;	/* in them: what UCX packs, or a put's pieces; a message of ivu_am_max() */
	uint32_t	puts;		/* peers with puts that are not known to be done */
	uint64_t	came;		/* messages */
	unsigned int	forks;		/* ivu_forks when it was opened */
	int		estimated;	/* the operation that UCX asks about, or IVU_OPERATION_NONE */
	int		timer;		/* wakes UCX, -1: was not asked for */
	uint64_t	idle_since, idle_came;	/* ns; what had come then */
	uint8_t		message[IVU_INLINE_MAX + 8] __attribute__((aligned(64)));
};

/*
 * The most bytes of an active message, header and data: what is longer was not sent by a transport of ours. UCX keeps a message of
 * over 1 KiB that no receive waits for in memory of that size, however long it is. So more than 32 KiB would be too much.
 */
static inline size_t ivu_am_max(const struct ivs_region *r)
{
	return r->geo.bounce_bytes + IVU_WHOLE_HEADER;
}

/* The most bytes that are written to registered memory at once. */
static inline size_t ivu_put_max(const struct ivs_region *r)
{
	return IVU_PIECES * (size_t) r->geo.bounce_bytes;
}

static inline struct ivu_iface *ivu_iface_of(struct ivs_ep *ep)
{
	return ivs_entry(ep, struct ivu_iface, ep);
}

/* How often this process was forked off: what was opened before is its parent's. */
extern unsigned int ivu_forks;

static inline bool ivu_alien(const struct ivu_iface *iface)
{
	return unlikely(iface->forks != ivu_forks);
}

/* Reads the parameters, and chooses how to copy. Once. */
void ivu_base_init(void);

/* iface.c */
ivu_status ivu_iface_open(struct ivu_memory *md, void *worker, const void *params, const void *config,
			  struct ivu_iface **iface);

/* component.c: what both transports have alike. */
struct ivu_config_names {
	const char	*md, *md_prefix, *tl, *tl_prefix;
};

/* Opens a memory domain of the region with these functions. */
ivu_status ivu_memory_open(void *comp, void **ops, struct ivu_md **md);
/* Fills in the answer to a query of a memory domain: its name, flags, and how long a packed key is. */
void ivu_memory_query(uint8_t *attr, const char *name, uint64_t flags, size_t key_bytes);
/* Adds to it the kinds of memory that could be registered. */
void ivu_memory_names(uint8_t *attr);
/* The answer to a query of a transport's devices: the one of that name. */
ivu_status ivu_device(const char *name, struct ivu_tl_device **devices, unsigned int *count);
/* Fills in a memory domain's functions: all but closing it are not there. */
void ivu_md_ops(void **ops);
/* Shows a component to UCX, with its transport: what it does not have yet is filled in. */
void ivu_component_add(struct ivu_component *component, struct ivu_tl *tl, void *rkey_compare,
		       const struct ivu_config_names *names);

/* iface.c: fills in an interface's internal functions, which are zeros before, once. */
void ivu_internal_ops(void **ops, void *estimate_perf, void *is_reachable_v2, void *is_connected);

/* window.c: shows the transport for memory of the region to UCX. */
void ivu_window_register(void);

/* ep.c: fills in the functions of endpoints. */
void ivu_ep_ops(struct ivu_iface_ops *ops);
/* Reports to UCX that an endpoint's peer is gone. */
void ivu_ep_fail(struct ivu_ep *ep);
/* Ends a completion, or counts it. */
void ivu_complete(struct ivu_completion *comp, ivu_status status);

/* peer.c */
/* Connects a peer that is not yet. Returns IVU_OK, or IVU_ERR_CONNECTION_RESET: it is gone. */
ivu_status ivu_peer_connect(struct ivu_peer *peer);
/* Does it live? Ends what is under way with it if not. */
bool ivu_peer_alive(struct ivu_peer *peer);
/* Notes what waits for it, so that ivs_ep_progress() calls ivs_peer_pump(). */
void ivu_peer_activate(struct ivu_peer *peer);
/* Sets peer->blocked. */
void ivu_peer_gate(struct ivu_peer *peer);
/* Are all puts to it done? */
bool ivu_peer_put_done(struct ivu_peer *peer);
void ivu_peer_free(struct ivu_peer *peer);

#endif /* IVU_UCX_H */
