/* The pages of a rank's pool, of which bounce buffers are made. */
#ifndef IVS_POOL_H
#define IVS_POOL_H

#include <stdbool.h>
#include <stdint.h>

/* What ring/bounce.c knows of the pool that begins at the rank's area. */
struct ivs_bounce_pool {
	uint8_t *pages; /* of each page: 0, it is free; of a buffer's first, how many that has; of the others any */
	uint32_t count; /* pages that there are */
	uint32_t turn;	/* those that are used now, */
	uint32_t taken; /* and how many were taken since they are as many */
	uint32_t next;	/* from here on the next buffer is searched for */
	uint32_t end; /* the byte of the pool behind the buffer that was taken last, if it was packed; 0: it was not */
	uint32_t touched; /* from there on none was asked about (ivs_bounce_fresh) */
};

#endif /* IVS_POOL_H */
