/* The queues of free bounce buffers. */
#ifndef IVS_POOL_H
#define IVS_POOL_H

#include <stdint.h>

/* Free bounce buffers of one kind (bounce.c), of which there are size from first on. */
struct ivs_bounce_pool {
	uint16_t	*free;		/* a queue: count from next on */
	uint32_t	next, count;
	uint32_t	first, size;
	uint32_t	fresh;		/* that were never taken */
};

#endif /* IVS_POOL_H */
