/* Finds a region without a configured path: a device whose first page begins with the region's magic. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/layout.h"
#include "region/discovery.h"

#define DAX_ALIGN (2UL << 20) /* the smallest mapping of a devdax device */

/* Returns true if the device at path, of which len bytes can be mapped, begins with the region's magic. */
static bool has_magic(const char *path, size_t len)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	bool found = false;
	void *map;

	if (fd < 0)
		return false;
	map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED) {
		found = !memcmp(map, NM_REGION_MAGIC, strlen(NM_REGION_MAGIC));
		munmap(map, len);
	}
	return found;
}

static bool find_dax(char *path, size_t size)
{
	DIR *d = opendir("/dev");
	bool found = false;
	struct dirent *e;

	while (d && !found && (e = readdir(d))) {
		if (strncmp(e->d_name, "dax", 3))
			continue;
		snprintf(path, size, "/dev/%s", e->d_name);
		found = has_magic(path, DAX_ALIGN);
	}
	if (d)
		closedir(d);
	return found;
}

/* Returns the hexadecimal number in a device's file of sysfs, or 0. */
static unsigned int number(const char *device, const char *name)
{
	char path[320];
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", device, name);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%x", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

static bool find_pci(char *path, size_t size)
{
	DIR *d = opendir("/sys/bus/pci/devices");
	bool found = false;
	struct dirent *e;

	while (d && !found && (e = readdir(d))) {
		/* ivshmem: QEMU's docs/specs/ivshmem-spec */
		if (e->d_name[0] == '.' || number(e->d_name, "vendor") != 0x1af4 ||
		    number(e->d_name, "device") != 0x1110)
			continue;
		snprintf(path, size, "/sys/bus/pci/devices/%s/resource2", e->d_name);
		found = has_magic(path, NM_REGION_HEADER_BYTES);
	}
	if (d)
		closedir(d);
	return found;
}

bool ivs_region_find(char *path, size_t size)
{
	return find_dax(path, size) || find_pci(path, size);
}
