/* Claims and releases a slot with its area. */
#include "region/heap.h"
#include "ring/bounce.h"
#include "ring/doorbell.h"
#include "ring/home.h"
#include "ring/ring.h"

void ivs_home_init(struct ivs_home *h, uint8_t protocol, const int *wake)
{
	h->protocol = protocol;
	h->wake = wake;
	h->doorbell = wake ? -1 : IVS_NO_DOORBELL;
	ivs_list_init(&h->rings);
}

int ivs_home_claim(struct ivs_home *h, struct ivs_region *r, uint64_t name)
{
	int ret = ivs_slot_claim(r, name, &h->slot, &h->epoch);

	if (ret)
		return ret;
	h->region = r;
	h->area = ivs_area(r, h->slot);
	ret = ivs_bounce_pool_open(h);
	if (!ret)
		ret = ivs_heap_open(h->slot, h->epoch, &h->heap);
	if (ret) {
		ivs_bounce_pool_close(h);
		ivs_slot_release(r, h->slot, h->epoch);
		h->region = NULL;
	}
	return ret;
}

void ivs_home_leave(struct ivs_home *h)
{
	ivs_doorbell_close(h);
	ivs_heap_close(h->heap);
	h->heap = NULL;
}

void ivs_home_free(struct ivs_home *h)
{
	ivs_ring_free_all(h);
	ivs_bounce_pool_close(h);
}
