#include <stdint.h>

#include "layout.h"
#include "lib.h"
#include "param.h"

#define MAX_NAP 3600000	/* ms */

struct ivs_param ivs_param = {
	.region_size	= 16UL << 30,
	.cma		= 1,
	.cma_min	= 8 << 10,
	.cma_max	= SIZE_MAX,
	.cma_joint	= 64 << 10,
	.past		= 1,
	.inline_max	= IVS_INLINE_MAX,
	.window		= 64 << 10,
	.unexpected	= 1UL << 30,
	.timeout	= 20000,
	.nap		= 50,
};

#define DEFINE(name, type, ...) \
	ivs_lib.param_define(&ivs_prov, name, type, __VA_ARGS__)

void ivs_param_init(void)
{
	DEFINE("region", FI_PARAM_STRING,
	       "Path of the region: a device, a PCI resource or a file (default: "
	       "$NEARMETAL_REGION, else " NM_REGION_DEVICE ", else a file of the job's "
	       "own in /dev/shm); \"none\": everything goes over the inner provider");
	DEFINE("region_size", FI_PARAM_SIZE_T,
	       "Bytes of a region made in /dev/shm; only what is touched takes memory "
	       "(default: %zu)", ivs_param.region_size);
	DEFINE("ranks", FI_PARAM_SIZE_T,
	       "Most ranks in a region that nobody has used yet, up to %d "
	       "(default: as many as fit well)", NM_LAYOUT_MAX_SLOTS);
	DEFINE("job", FI_PARAM_STRING,
	       "Name of the job: ranks of different jobs never share a region "
	       "(default: what the launcher or Slurm says)");
	DEFINE("cma", FI_PARAM_BOOL,
	       "Read large messages directly from a peer's memory within a VM "
	       "(default: yes, where the kernel allows it)");
	DEFINE("cma_min", FI_PARAM_SIZE_T,
	       "Smallest message in bytes that is read directly (default: from %zu on where that is "
	       "measured to be faster)",
	       ivs_param.cma_min);
	DEFINE("cma_max", FI_PARAM_SIZE_T,
	       "Largest message in bytes that is read directly (default: of any size)");
	DEFINE("cma_joint", FI_PARAM_SIZE_T,
	       "Smallest message in bytes of which sender and receiver copy a part each, "
	       "0: the receiver always copies all (default: %zu)", ivs_param.cma_joint);
	DEFINE("past", FI_PARAM_BOOL,
	       "Copy large pieces of messages past the caches for ranks where that is measured "
	       "to be faster, as it is if no cache is shared with them (default: yes)");
	DEFINE("inline_max", FI_PARAM_SIZE_T,
	       "Largest message in bytes that is put into the ring itself, up to %d "
	       "(default: %zu)", IVS_INLINE_MAX, ivs_param.inline_max);
	DEFINE("window", FI_PARAM_SIZE_T,
	       "Bytes of a message that are sent before its receive is posted "
	       "(default: %zu)", ivs_param.window);
	DEFINE("unexpected", FI_PARAM_SIZE_T,
	       "Most bytes held for receives that are not posted yet; beyond, senders "
	       "have to wait (default: %zu)", ivs_param.unexpected);
	DEFINE("timeout", FI_PARAM_SIZE_T,
	       "Milliseconds without a heartbeat after which a rank is taken for dead "
	       "(default: %zu)", ivs_param.timeout);
	DEFINE("nap", FI_PARAM_SIZE_T,
	       "Milliseconds after which a rank that sleeps until a neighbour wakes it looks "
	       "around all the same (default: %zu)", ivs_param.nap);
	DEFINE("inner", FI_PARAM_STRING,
	       "Provider for ranks on other hosts, \"none\" for none, \"auto\" for the first of "
	       "verbs;ofi_rxm, efa, tcp, tcp;ofi_rxm (default: auto if the launcher says that "
	       "there are other hosts, or there is no region)");
	DEFINE("uncached", FI_PARAM_BOOL,
	       "Use a region that the kernel maps uncached, at a hundredth of the speed "
	       "(default: no)");

#define GET(name, field) ivs_lib.param_get(&ivs_prov, name, &ivs_param.field)
	GET("region", region);
	GET("region_size", region_size);
	GET("ranks", ranks);
	GET("job", job);
	GET("cma", cma);
	/* Who says from when on means it. */
	ivs_param.cma_measure = GET("cma_min", cma_min) != FI_SUCCESS;
	GET("cma_max", cma_max);
	GET("cma_joint", cma_joint);
	GET("past", past);
	GET("inline_max", inline_max);
	GET("window", window);
	GET("unexpected", unexpected);
	GET("timeout", timeout);
	GET("nap", nap);
	GET("inner", inner);
	GET("uncached", uncached);
#undef GET
	if (ivs_param.inline_max > IVS_INLINE_MAX)
		ivs_param.inline_max = IVS_INLINE_MAX;
	if (ivs_param.ranks > NM_LAYOUT_MAX_SLOTS)
		ivs_param.ranks = NM_LAYOUT_MAX_SLOTS;
	if (ivs_param.nap < 1)
		ivs_param.nap = 1;
	if (ivs_param.nap > MAX_NAP)
		ivs_param.nap = MAX_NAP;
	if (ivs_param.timeout < 1000)
		ivs_param.timeout = 1000;
	if (ivs_param.window < NM_LAYOUT_CHUNK_BYTES)
		ivs_param.window = NM_LAYOUT_CHUNK_BYTES;
}
