/* The region's formats, and the provider's limits that follow from them. */
#ifndef IVS_LAYOUT_H
#define IVS_LAYOUT_H

#include <nearmetal/layout.h>
#include <nearmetal/region.h>

#define IVS_BOUNCE NM_LAYOUT_BOUNCE_BYTES

/* Payload of a message that fits the smallest ring with a line to spare. */
#define IVS_INLINE_LINES 6
#define IVS_INLINE_MAX	 (NM_LINE_FIRST_BYTES + (IVS_INLINE_LINES - 1) * NM_LINE_MORE_BYTES)

#endif /* IVS_LAYOUT_H */
