/* The region: found, mapped, and this process's ranks in it. */
#ifndef IVS_REGION_H
#define IVS_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/cycles.h"
#include "base/layout.h"

/* The state of a slot as a claim last saw it. */
struct ivs_watched {
	uint64_t owner, beat;
	uint64_t quiet_ms; /* ms since a change of them */
};

struct ivs_region {
	uint8_t *base; /* first byte of the header */
	size_t map_bytes;
	void *map;
	int fd;
	bool file; /* a file that the provider made: locked, and removed by its last user */
	char path[320];
	struct nm_region_header header; /* the checked copy */
	uint64_t id;			/* ranks with the same id are neighbours */
	struct nm_layout_geometry geo;
	uint8_t *layout;
	struct nm_layout_head *head;
	struct nm_slot *slots;
	int users; /* domains; under ivs_region_lock */
	pid_t pid; /* process that mapped it */
	pthread_mutex_t beat_lock;
	pthread_cond_t beat_cond, held_cond; /* to the heartbeat thread; from it: ledgers are held as in beat_mask */
	pthread_t beat_thread;
	bool beat_on;
	uint64_t beats; /* of this process, from 1 on */
	bool beat_stop;
	bool keep; /* it stays mapped */
	uint64_t beat_mask[NM_LAYOUT_MAX_SLOTS / 64];
	struct ivs_watched watched[NM_LAYOUT_MAX_SLOTS]; /* under beat_lock */
};

/*
 * Returns the process's region, and maps it for the first user. Returns -FI_ENODATA without a region; other errors are
 * logged with what to do.
 */
int ivs_region_get(struct ivs_region **region);
void ivs_region_put(struct ivs_region *region);

/*
 * Allocates the memory of len bytes of the region permanently. Without it, writing there on a full file system ends the
 * process by SIGBUS. Regions that are not files of this provider already have their memory. warn: log a warning on
 * failure. Returns 0 or a negative error.
 */
int ivs_region_take(const struct ivs_region *region, const void *at, size_t len, bool warn);

/* Returns true if ivs_region_get() could succeed. Opens and creates nothing. */
bool ivs_region_likely(void);

/* Returns true in a child of process pid: it must not use what pid opened. */
bool ivs_forked(pid_t pid);

/*
 * Claims a slot and fills it in; name is a hash or 0. Sets the slot's number and epoch. Returns 0 or a negative error,
 * -FI_ENOSPC if all slots are used.
 */
int ivs_slot_claim(struct ivs_region *region, uint64_t name, uint32_t *slot, uint32_t *epoch);
/* Shows the slot to others, once its rings are valid. */
void ivs_slot_live(struct ivs_region *region, uint32_t slot, uint32_t epoch);
void ivs_slot_release(struct ivs_region *region, uint32_t slot, uint32_t epoch);
/* Returns the number of the live slot with this name, or -1. */
int ivs_slot_find(struct ivs_region *region, uint64_t name, uint32_t *epoch);

/* The state of another rank's process. */
struct ivs_alive {
	const struct ivs_ledger *ledger; /* mapped from a neighbour (ivs_slot_neighbour()), else NULL */
	pid_t pid;			 /* a neighbour's process */
	uint8_t key[16];		 /* a neighbour's key */
	uint64_t beat;
	uint64_t seen; /* our own beats at its last change, 0: never read */
};

/* Returns true if the owner of slot in that epoch is alive. */
bool ivs_slot_alive(struct ivs_region *region, uint32_t slot, uint32_t epoch, struct ivs_alive *alive);

/* Returns the milliseconds of a clock that never jumps. */
uint64_t ivs_now_ms(void);

/*
 * Proves that a slot's owner is a process of this user whose memory this process can read: the struct nm_proof that the
 * slot names must be of that slot and epoch, and in its ledger; and the kernel must report that this process listens at
 * the name that only its key leads to (identity.h). Sets *alive and returns true, or returns false. ivs_slot_forget()
 * releases *alive.
 */
bool ivs_slot_neighbour(struct ivs_region *region, uint32_t slot, uint32_t epoch, struct ivs_alive *alive);
void ivs_slot_forget(struct ivs_alive *alive);

/* Returns this process's own key. */
const uint8_t *ivs_slot_key(void);

struct ivs_ledger;
/* Returns this process's own ledger for a slot that it has claimed, or NULL. */
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
 * Returns the len bytes, at most `most`, after a gap in the buffer that begins at this page of the pool of the rank in
 * slot. Returns NULL if they are not within the pool.
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
