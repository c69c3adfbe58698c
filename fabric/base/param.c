#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/lib.h"
#include "base/param.h"
#include "tune.h"

#define MAX_WAIT_TIMEOUT 3600000 /* ms */

struct ivs_param ivs_param = {
	.region_size = 16UL << 30,
	.cma = 1,
	.cma_min = IVS_CMA_MIN,
	.cma_max = SIZE_MAX,
	.cma_coop = IVS_COOP_MIN,
	.nt = 1,
	.inline_max = IVS_INLINE_MAX,
	.window = IVS_WINDOW,
	.unexpected = 1UL << 30,
	.timeout = 20000,
	.wait_timeout = 50,
};

#define DEFINE(name, type, ...) ivs_lib.param_define(&ivs_prov, name, type, __VA_ARGS__)

#define GET(name, field) ivs_lib.param_get(&ivs_prov, name, &ivs_param.field)

/* Reads two parameters under their names in providers before 0.2.0. They apply where the new names are not set. */
static void old_names(bool core, bool wait)
{
	char *text = getenv("FI_IVSHMEM_INNER");
	char *end;
	unsigned long ms;

	if (core && text)
		ivs_param.core = text;
	text = getenv("FI_IVSHMEM_NAP");
	if (!wait || !text || text[0] < '0' || text[0] > '9')
		return;
	ms = strtoul(text, &end, 10);
	if (!*end)
		ivs_param.wait_timeout = ms;
}

/*
 * Defines the parameters that only tests use (docs/testing.md lists them). They force paths that are never the fastest.
 */
static void test_params(void)
{
	DEFINE("cma_max", FI_PARAM_SIZE_T, "Largest message in bytes that is read directly (default: of any size)");
	DEFINE("cma_coop", FI_PARAM_SIZE_T,
	       "Smallest message in bytes of which sender and receiver copy a part each, "
	       "0: the receiver always copies all (default: %zu)",
	       ivs_param.cma_coop);
	DEFINE("nt", FI_PARAM_BOOL,
	       "Copy large pieces of messages non-temporally for ranks where that is measured "
	       "to be faster, as it is if no cache is shared with them (default: yes)");
	DEFINE("inline_max", FI_PARAM_SIZE_T,
	       "Largest message in bytes that is put into the ring itself, up to %d "
	       "(default: %zu)",
	       IVS_INLINE_MAX, ivs_param.inline_max);
	DEFINE("window", FI_PARAM_SIZE_T,
	       "Bytes of a message that are sent before its receive is posted "
	       "(default: %zu)",
	       ivs_param.window);

	GET("cma_max", cma_max);
	GET("cma_coop", cma_coop);
	GET("nt", nt);
	GET("inline_max", inline_max);
	GET("window", window);
}

void ivs_param_init(void)
{
	const char *test = getenv("FI_IVSHMEM_TEST");

	DEFINE("region", FI_PARAM_STRING,
	       "Path of the region: a device, a PCI resource or a file (default: "
	       "$NEARMETAL_REGION, else " NM_REGION_DEVICE ", else a file of the job's "
	       "own in /dev/shm); \"none\": everything goes over the core provider");
	DEFINE("region_size", FI_PARAM_SIZE_T,
	       "Bytes of a region made in /dev/shm; it takes memory as ranks need it "
	       "(default: %zu)",
	       ivs_param.region_size);
	DEFINE("ranks", FI_PARAM_SIZE_T,
	       "Most ranks in a region that nobody has used yet, up to %d "
	       "(default: as many as fit well)",
	       NM_LAYOUT_MAX_SLOTS);
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
	DEFINE("unexpected", FI_PARAM_SIZE_T,
	       "Most bytes held for receives that are not posted yet: half for whoever sends first, half in "
	       "equal shares for every rank; beyond, senders have to wait (default: %zu)",
	       ivs_param.unexpected);
	DEFINE("timeout", FI_PARAM_SIZE_T,
	       "Milliseconds without a heartbeat after which a rank is taken for dead "
	       "(default: %zu)",
	       ivs_param.timeout);
	DEFINE("wait_timeout", FI_PARAM_SIZE_T,
	       "Wait timeout: milliseconds after which a rank that sleeps until a neighbour wakes it "
	       "polls all the same (default: %zu)",
	       ivs_param.wait_timeout);
	DEFINE("core", FI_PARAM_STRING,
	       "Provider for ranks on other hosts, \"none\" for none, \"auto\" for the first of "
	       "verbs;ofi_rxm, efa, tcp, tcp;ofi_rxm (default: auto if the launcher says that "
	       "there are other hosts, or there is no region)");
	DEFINE("devices", FI_PARAM_STRING,
	       "RDMA devices for ranks on other hosts, with commas between them: each rank uses one on "
	       "its NUMA node, of several the one that its number within the VM says (default: "
	       "the first that the provider offers)");
	DEFINE("overcommit", FI_PARAM_BOOL,
	       "The host has fewer CPUs than its VMs have vCPUs: a rank that waits sleeps after a "
	       "microsecond, so that the host runs another VM (default: no)");
	DEFINE("uncached", FI_PARAM_BOOL,
	       "Use a region that the kernel maps uncached, at a hundredth of the speed "
	       "(default: no)");

	GET("region", region);
	GET("region_size", region_size);
	GET("ranks", ranks);
	GET("job", job);
	GET("cma", cma);
	/* A size that the user sets is used without measuring. */
	ivs_param.cma_measure = GET("cma_min", cma_min) != FI_SUCCESS;
	GET("unexpected", unexpected);
	GET("timeout", timeout);
	old_names(GET("core", core) != FI_SUCCESS, GET("wait_timeout", wait_timeout) != FI_SUCCESS);
	GET("devices", devices);
	GET("overcommit", overcommit);
	GET("uncached", uncached);
	if (test && !strcmp(test, "1"))
		test_params();
	if (ivs_param.inline_max > IVS_INLINE_MAX)
		ivs_param.inline_max = IVS_INLINE_MAX;
	if (ivs_param.ranks > NM_LAYOUT_MAX_SLOTS)
		ivs_param.ranks = NM_LAYOUT_MAX_SLOTS;
	if (ivs_param.wait_timeout < 1)
		ivs_param.wait_timeout = 1;
	if (ivs_param.wait_timeout > MAX_WAIT_TIMEOUT)
		ivs_param.wait_timeout = MAX_WAIT_TIMEOUT;
	if (ivs_param.timeout < 1000)
		ivs_param.timeout = 1000;
	if (ivs_param.window < NM_LAYOUT_BOUNCE_BYTES)
		ivs_param.window = NM_LAYOUT_BOUNCE_BYTES;
	if (ivs_param.window > IVS_WINDOW_MAX)
		ivs_param.window = IVS_WINDOW_MAX;
}
