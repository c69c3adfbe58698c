/* The region: found, mapped, and this process's ranks in it. */
#ifndef IVS_REGION_H
#define IVS_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/cycles.h"
#include "base/layout.h"

/* What a claim has seen of a slot. */
struct ivs_watched {
	uint64_t owner, beat;
	uint64_t quiet_ms; /* counted since they last changed */
};

struct ivs_region {
	uint8_t *base; /* header's first byte */
	size_t map_bytes;
	void *map;
	int fd;
	bool file; /* a file of ours: locked, and removed by the last */
	char path[320];
	struct nm_region_header header; /* the copy that was checked */
	uint64_t id;			/* what makes two ranks neighbours */
	struct nm_layout_geometry geo;
	uint8_t *layout;
	struct nm_layout_head *head;
	struct nm_slot *slots;
	int users; /* domains; under ivs_region_lock */
	pid_t pid; /* of the process that mapped it */
	pthread_mutex_t beat_lock;
	pthread_cond_t beat_cond, held_cond; /* for the heart, and from it: the ledgers are held as beat_mask has it */
	pthread_t beat_thread;
	bool beat_on;
	uint64_t beats; /* of this process, from 1 on */
	bool beat_stop;
	bool keep; /* it stays mapped */
	uint64_t beat_mask[NM_LAYOUT_MAX_SLOTS / 64];
	struct ivs_watched watched[NM_LAYOUT_MAX_SLOTS]; /* under beat_lock */
};

/*
 * Returns the process's region, mapping it for the first user. -FI_ENODATA: there is
 * none; other errors are logged with what to do.
 */
int ivs_region_get(struct ivs_region **region);
void ivs_region_put(struct ivs_region *region);

/*
 * Allocates the memory of len bytes of the region for good. Without that, writing there ends a process by SIGBUS
 * where the file system is full.
 * Other regions than files of ours have theirs. Returns 0 or a negative error; warn: with a warning.
 */
int ivs_region_take(const struct ivs_region *region, const void *at, size_t len, bool warn);

/* Could ivs_region_get() succeed? Opens and makes nothing. */
bool ivs_region_likely(void);

/* Is this a child of the process pid, with what pid opened? It must leave that alone. */
bool ivs_forked(pid_t pid);

/*
 * Claims a slot and fills it in; name is a hash or 0. Returns the slot's number and
 * epoch, or -FI_ENOSPC if all are taken.
 */
int ivs_slot_claim(struct ivs_region *region, uint64_t name, uint32_t *slot, uint32_t *epoch);
/* Shows the slot to others, once its rings are in order. */
void ivs_slot_live(struct ivs_region *region, uint32_t slot, uint32_t epoch);
void ivs_slot_release(struct ivs_region *region, uint32_t slot, uint32_t epoch);
/* The live slot with this name: its number, or -1. */
int ivs_slot_find(struct ivs_region *region, uint64_t name, uint32_t *epoch);

/* Another rank's process. */
struct ivs_alive {
	const struct ivs_ledger *ledger; /* of a neighbour (ivs_slot_neighbour()): its own, which we map; else NULL */
	pid_t pid;			 /* of a neighbour: its process, */
	uint8_t key[16];		 /* and its key */
	uint64_t beat;
	uint64_t seen; /* our own beats when it last changed, 0: never read */
};

/* Does the owner of slot in that epoch live? */
bool ivs_slot_alive(struct ivs_region *region, uint32_t slot, uint32_t epoch, struct ivs_alive *alive);

/* Milliseconds of a clock that never jumps. */
uint64_t ivs_now_ms(void);

/*
 * Proves that a slot's owner is a process of this user's whose memory we can read: the
 * struct nm_proof that the slot names must be of that slot and epoch, and in its ledger; and the kernel must say
 * that this process listens at the name that only its key leads to (identity.h). Sets *alive and
 * returns true, or returns false. ivs_slot_forget() ends what is in *alive.
 */
bool ivs_slot_neighbour(struct ivs_region *region, uint32_t slot, uint32_t epoch, struct ivs_alive *alive);
void ivs_slot_forget(struct ivs_alive *alive);

/* This process's own key. */
const uint8_t *ivs_slot_key(void);

struct ivs_ledger;
/* This process's own ledger for a slot that it has claimed, or NULL. */
struct ivs_ledger *ivs_slot_ledger(uint32_t slot);

static inline struct nm_conn *ivs_conn(struct ivs_region *r, uint32_t to, uint32_t from)
{
	return (struct nm_conn *) (r->layout + r->geo.conn_table) + (size_t) to * r->geo.slots + from;
}

static inline uint8_t *ivs_area(struct ivs_region *r, uint32_t slot)
{
	return r->layout + r->geo.areas + slot * r->geo.area_bytes;
}

/*
 * The len bytes, at most `most`, behind a gap in the buffer that begins with a page of the pool of the rank in slot; NULL: it
 * has no such.
 */
static inline uint8_t *ivs_bounced(struct ivs_region *r, uint32_t slot, uint32_t page, size_t gap, size_t len,
				   size_t most)
{
	size_t at = (size_t) page * NM_LAYOUT_PAGE + gap;

	if (len > most || at > r->geo.heap || len > r->geo.heap - at)
		return NULL;
	return ivs_area(r, slot) + at;
}

static inline struct nm_mr *ivs_mrs(struct ivs_region *r, uint32_t slot)
{
	return (struct nm_mr *) (r->layout + r->geo.mr_table) + (size_t) slot * (NM_LAYOUT_MR_COUNT + 1);
}

#endif /* IVS_REGION_H */
