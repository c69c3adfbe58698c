/*
 * Times of the protocol: how often a rank shows that it is alive, and when others notice that it is not. They do not
 * affect speed. All follow from the smallest FI_IVSHMEM_TIMEOUT, 1 s (param.c).
 */
#ifndef IVS_TIMES_H
#define IVS_TIMES_H

#define IVS_BEAT_MS  250 /* ms between two heartbeats: four in that second, so that one may be late */
#define IVS_CHECK_MS 100 /* longest ms between two checks of peers: less than half a beat, so that each beat is seen */
#define IVS_CLAIM_MS 50	 /* ms between two searches for a free slot: each owner is checked five times per beat */
#define IVS_SAME_KERNEL_MS \
	(8 * IVS_BEAT_MS) /* ms without a heartbeat before a missing process counts as dead: twice that second */

#endif /* IVS_TIMES_H */
