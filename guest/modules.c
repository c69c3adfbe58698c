#include "init.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Loads one module, "path" or "path parameters", and removes its file, because the initramfs uses memory. */
static void load(char *line)
{
	char *space = strchr(line, ' ');
	int fd;

	if (space)
		*space = 0;
	fd = open(line, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say("module %s: %s", line, strerror(errno));
		return;
	}
	if (syscall(SYS_finit_module, fd, space ? space + 1 : "", 0) && errno != EEXIST)
		say("module %s: %s", line, strerror(errno));
	close(fd);
	unlink(line);
}

void modules_load(const char *list)
{
	FILE *f = fopen(list, "re");
	char line[1024];

	if (!f) {
		if (errno != ENOENT)
			say("%s: %s", list, strerror(errno));
		return; /* everything is built into the kernel */
	}
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (*line)
			load(line);
	}
	fclose(f);
}
