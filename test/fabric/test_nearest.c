/* Which of several devices a rank uses, on /sys trees made for it. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/nearest.h"

static char sys[] = "/tmp/nearest.XXXXXX";
static cpu_set_t cpus[IVS_NEAREST_CPUS / 8 / sizeof(cpu_set_t)];
static int bad;

/* Writes a line to a file below sys, and creates its directories. */
static void put(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", sys, name);
	for (char *s = path + strlen(sys) + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = 0;
		mkdir(path, 0755);
	}
	f = fopen(path, "w");
	if (!f || fprintf(f, "%s\n", text) < 0 || fclose(f))
		exit(1);
}

/* Checks that ranks with this number in the VM, bound to CPUs first to last, use device want. */
static void want(const char *what, int first, int last, unsigned long local, const char *name)
{
	static const char *const names[] = { "mlx5_0", "mlx5_1", "rxe0", "gone", "mlx5_2" };
	const char *got;

	memset(cpus, 0, sizeof(cpus));
	for (int c = first; c <= last; c++)
		CPU_SET_S(c, sizeof(cpus), cpus);
	got = names[ivs_nearest(sys, names, 5, first < 0 ? NULL : cpus, local)];
	if (strcmp(got, name)) {
		printf("%s: CPUs %d-%d, local rank %lu: %s, want %s\n", what, first, last, local, got, name);
		bad = 1;
	}
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void) st, (void) type, (void) at;
	return remove(path);
}

int main(void)
{
	if (!mkdtemp(sys))
		return 1;
	put("devices/system/node/node0/cpulist", "0-3,16-19");
	put("devices/system/node/node1/cpulist", "4-7,20-23");
	put("devices/system/node/node2/cpulist", "8-11");
	put("devices/system/node/node3/cpulist", "");
	put("class/infiniband/mlx5_0/device/numa_node", "0");
	put("class/infiniband/mlx5_1/device/numa_node", "1");
	put("class/infiniband/mlx5_2/device/numa_node", "1");
	put("class/infiniband/rxe0/parent", "eth2");
	put("class/net/eth2/device/numa_node", "3");
	want("one on the node", 0, 0, 5, "mlx5_0");
	want("by its second thread", 17, 17, 0, "mlx5_0");
	want("two on the node", 4, 5, 0, "mlx5_1");
	want("two on the node", 4, 5, 1, "mlx5_2");
	want("two nodes", 0, 7, 1, "mlx5_1");
	want("two nodes", 0, 7, 2, "mlx5_2");
	want("two nodes", 0, 7, 3, "mlx5_0");
	want("none on the node", 8, 8, 2, "rxe0");
	want("none on the node", 8, 8, 5, "mlx5_0");
	want("unknown CPUs", -1, -1, 4, "mlx5_2");

	put("class/net/eth2/device/numa_node", "2");
	want("soft RoCE is on its card's node", 8, 8, 7, "rxe0");
	put("class/infiniband/rxe0/parent", "../net/eth2");
	want("a parent that is not a name", 8, 8, 1, "mlx5_1");
	put("class/infiniband/mlx5_0/device/numa_node", "-1");
	want("a device without a node", 0, 0, 0, "mlx5_0");
	want("a device without a node", 0, 0, 1, "mlx5_1");
	put("class/infiniband/mlx5_1/device/numa_node", "99999999999999999999");
	want("a node that cannot be", 4, 4, 3, "mlx5_2");
	put("devices/system/node/node1/cpulist", "4-99999999999,x");
	want("a list that cannot be", 6000, 6000, 3, "mlx5_2");
	put("devices/system/node/node1/cpulist", "x");
	want("a list that cannot be", 4, 4, 1, "mlx5_1");
	nftw(sys, drop, 8, FTW_DEPTH | FTW_PHYS);
	return bad;
}
