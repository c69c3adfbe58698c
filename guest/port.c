#include "init.h"
#include "uevent.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char ports[] = "/sys/class/virtio-ports";

struct search {
	const char *name;
	char device[280];
};

static bool find(void *what)
{
	struct search *s = what;
	DIR *d = opendir(ports);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d))) {
		char path[512], name[128];
		ssize_t n;
		int fd;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/name", ports, e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, name, sizeof(name) - 1);
		close(fd);
		if (n <= 0)
			continue;
		name[n] = 0;
		name[strcspn(name, "\n")] = 0;
		if (strcmp(name, s->name))
			continue;
		snprintf(s->device, sizeof(s->device), "/dev/%s", e->d_name);
		found = !access(s->device, F_OK);
	}
	if (d)
		closedir(d);
	return found;
}

int port_open(const char *name, int timeout_ms)
{
	struct search s = { .name = name };

	if (!uevent_wait(find, &s, timeout_ms))
		return -1;
	return open(s.device, O_RDWR | O_CLOEXEC);
}
