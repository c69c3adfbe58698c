/*
 * Times of the protocol: when a rank shows that it lives, and when others see that it does not. They change no speed.
 * All follow from the least FI_IVSHMEM_TIMEOUT, 1 s (param.c).
 */
#ifndef IVS_TIMES_H
#define IVS_TIMES_H

#define IVS_BEAT_MS  250 /* ms between two heartbeats: four in that second, so that one may be late */
#define IVS_CHECK_MS 100 /* ms between two checks of peers at least: less than half a beat, so that each beat is seen */
#define IVS_CLAIM_MS 50	 /* ms between two searches for a free slot: within a beat each owner is seen five times */
#define IVS_SAME_KERNEL_MS \
	(8 * IVS_BEAT_MS) /* ms without a heartbeat before a missing process counts: twice that second */

#endif /* IVS_TIMES_H */
