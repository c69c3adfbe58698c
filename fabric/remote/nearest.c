#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote/nearest.h"

#define NODES 1024 /* NUMA nodes of a host: the kernel supports no more */

/* Reads the first line of the file sys/dir/name/last, without its end. Returns false if there is none. */
static bool line_of(char *to, size_t size, const char *sys, const char *dir, const char *name, const char *last)
{
	char path[512];
	ssize_t n = -1;
	int fd, len = snprintf(path, sizeof(path), "%s/%s/%s/%s", sys, dir, name, last);

	if (len < 0 || (size_t) len >= sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, to, size - 1);
		close(fd);
	}
	if (n <= 0)
		return false;
	to[n] = 0;
	to[strcspn(to, "\n")] = 0;
	return true;
}

/*
 * Returns the NUMA node of an RDMA device, or -1 if unknown. For soft RoCE it is the node of its network interface's
 * card.
 */
static long node_of(const char *sys, const char *name)
{
	char text[32], net[64], *end;
	long node;

	if (!line_of(text, sizeof(text), sys, "class/infiniband", name, "device/numa_node") &&
	    (!line_of(net, sizeof(net), sys, "class/infiniband", name, "parent") || strchr(net, '/') ||
	     !line_of(text, sizeof(text), sys, "class/net", net, "device/numa_node")))
		return -1;
	node = strtol(text, &end, 10);
	return end == text || node < 0 || node >= NODES ? -1 : node;
}

/* Returns true if one of the CPUs in a list in the kernel's format, such as "0-3,8", is in the set. */
static bool any_of(const char *list, const cpu_set_t *cpus)
{
	while (*list) {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < IVS_NEAREST_CPUS; first++)
			if (CPU_ISSET_S(first, IVS_NEAREST_CPUS / 8, cpus))
				return true;
		list = *end == ',' ? end + 1 : "";
	}
	return false;
}

/* Returns true if the rank may run on the node. */
static bool runs_on(const char *sys, long node, const cpu_set_t *cpus)
{
	char name[32], list[4096];

	snprintf(name, sizeof(name), "node%ld", node);
	return line_of(list, sizeof(list), sys, "devices/system/node", name, "cpulist") && any_of(list, cpus);
}

size_t ivs_nearest(const char *sys, const char *const *names, size_t count, const cpu_set_t *cpus, unsigned long local)
{
	size_t near[IVS_NEAREST_MAX], n = 0;

	if (!count)
		return 0;
	for (size_t i = 0; cpus && i < count && i < IVS_NEAREST_MAX; i++) {
		long node = node_of(sys, names[i]);

		if (node >= 0 && runs_on(sys, node, cpus))
			near[n++] = i;
	}
	return n ? near[local % n] : local % count;
}
