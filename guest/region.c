#include "init.h"
#include "log.h"
#include "uevent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char devices[] = "/sys/bus/pci/devices";
static const char shown[] = "/dev/nearmetal/region";

static bool reads(const char *path, const char *want)
{
	char b[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, b, sizeof(b) - 1);
	close(fd);
	if (n <= 0)
		return false;
	b[n] = 0;
	b[strcspn(b, "\n")] = 0;
	return !strcmp(b, want);
}

/* Finds the file of the ivshmem device's memory (PCI 1af4:1110, BAR 2). */
static bool find_ivshmem(char *to, size_t size)
{
	DIR *d = opendir(devices);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d))) {
		char path[400];
		int fd;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/device", devices, e->d_name);
		if (!reads(path, "0x1110"))
			continue;
		snprintf(path, sizeof(path), "%s/%s/vendor", devices, e->d_name);
		if (!reads(path, "0x1af4"))
			continue;
		/* Without it the device does not respond to accesses to its memory. */
		snprintf(path, sizeof(path), "%s/%s/enable", devices, e->d_name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "1", 1) != 1)
			die("region: %s: %s", path, strerror(errno));
		close(fd);
		snprintf(to, size, "%s/%s/resource2", devices, e->d_name);
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

static bool dax_there(void *what)
{
	return !access(what, F_OK);
}

void region_show(const struct config *c)
{
	static char dax[] = "/dev/dax0.0";
	char path[400];
	struct stat st;
	FILE *f;

	if (!c->region)
		return;
	if (!strcmp(c->region_kind, "devdax")) {
		if (!uevent_wait(dax_there, dax, 10000))
			die("region: there is no %s", dax);
		strcpy(path, dax);
	} else {
		if (!find_ivshmem(path, sizeof(path)))
			die("region: there is no ivshmem device (PCI 1af4:1110)");
		if (stat(path, &st))
			die("region: %s: %s", path, strerror(errno));
		if ((uint64_t) st.st_size != c->region_size)
			die("region: the device has %llu bytes, not %llu", (unsigned long long) st.st_size,
			    (unsigned long long) c->region_size);
	}
	if (chown(path, c->region_uid, c->region_gid) || chmod(path, 0600))
		die("region: %s: %s", path, strerror(errno));
	mkdir("/dev/nearmetal", 0755);
	if (symlink(path, shown))
		die("region: %s: %s", shown, strerror(errno));
	f = fopen("/run/nearmetal/region", "we");
	if (!f)
		die("/run/nearmetal/region: %s", strerror(errno));
	fprintf(f, "kind %s\nsize %llu\npath %s\n", c->region_kind, (unsigned long long) c->region_size, shown);
	fclose(f);
}
