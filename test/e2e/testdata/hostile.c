/*
 * A guest that means harm. As /init (the kernel's argument hostile=MODE becomes its
 * environment) it never was an agent; called with a MODE by root of a VM, it takes the
 * agent's open port out of process 1. Modes:
 *
 *   garbage  random bytes on the channel, for ever
 *   frozen   the same, after process 1 was stopped, which then cannot end its VM
 *   flood    well-formed frames that ask for much (streams to vm0, with long headers, and
 *            PINGs), none of whose answers is read
 *   console  text and control sequences on the console, for ever
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	if (getpid() == 1)
		for (;;)
			pause();
	exit(3);
}

static void load_modules(void)
{
	char path[256];
	FILE *f = fopen("/nearmetal/modules", "r");

	while (f && fgets(path, sizeof(path), f)) {
		int fd;

		path[strcspn(path, "\n")] = 0;
		fd = open(path, O_RDONLY);
		syscall(SYS_finit_module, fd, "", 0);
		close(fd);
	}
}

static int own_port(void)
{
	const struct timespec pause10 = { 0, 10000000 };
	int fd = -1;

	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, "");
	mount("proc", "/proc", "proc", 0, "");
	load_modules();
	for (int i = 0; fd < 0 && i < 3000; i++) {
		fd = open("/dev/vport0p1", O_RDWR);
		if (fd < 0)
			fd = open("/dev/vport1p1", O_RDWR);
		nanosleep(&pause10, NULL);
	}
	return fd;
}

static int stolen_port(void)
{
	int init = syscall(SYS_pidfd_open, 1, 0);
	DIR *d = opendir("/proc/1/fd");
	struct dirent *e;

	if (init < 0 || !d)
		die("process 1");
	while ((e = readdir(d))) {
		char path[300], to[300];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/1/fd/%s", e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (to[n] = 0, strstr(to, "vport")))
			return syscall(SYS_pidfd_getfd, init, atoi(e->d_name), 0);
	}
	die("no port in process 1");
	return -1;
}

static void put(int fd, const void *b, size_t n)
{
	const char *p = b;

	while (n) {
		ssize_t k = write(fd, p, n);

		if (k > 0) {
			p += k;
			n -= k;
		} else if (k < 0 && errno != EINTR && errno != EAGAIN) {
			die("write");
		}
	}
}

static void tell(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, word, strlen(word)) < 0)
		die(path);
	close(fd);
}

/* freeze stops process 1, which takes no signal that would, by a cgroup of its own. */
static void freeze(void)
{
	mkdir("/run/hostile", 0700);
	if (mount("cgroup2", "/run/hostile", "cgroup2", 0, ""))
		die("cgroup2");
	mkdir("/run/hostile/frozen", 0700);
	tell("/run/hostile/frozen/cgroup.procs", "1");
	tell("/run/hostile/frozen/cgroup.freeze", "1");
}

static void garbage(int fd)
{
	static uint64_t b[8192], x = 0x9e3779b97f4a7c15;

	for (;;) {
		for (int i = 0; i < 8192; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			b[i] = x;
		}
		put(fd, b, sizeof(b));
	}
}

static void frame(int fd, int type, int lane, uint32_t stream, const void *payload, uint32_t n)
{
	static char b[12 + 65536];
	const char head[4] = { 0x4e, 1, type, lane };

	memcpy(b, head, 4);
	memcpy(b + 4, &stream, 4);
	memcpy(b + 8, &n, 4);
	memcpy(b + 12, payload, n);
	put(fd, b, 12 + n);
}

static void flood(int fd, int frames)
{
	static char header[60000];
	static const char hello[] = "protocol=1\0agent=hostile\0kernel=none";
	static const char start[] = "exec\0vm=vm0\0arg=/bin/true\0uid=0\0gid=0\0env=A=";
	uint64_t ping = 0;

	if (getpid() == 1)
		frame(fd, 1, 0, 0, hello, sizeof(hello));
	memset(header, 'x', sizeof(header));
	memcpy(header, start, sizeof(start) - 1);
	header[sizeof(header) - 1] = 0;
	for (uint32_t id = 1000000; frames--; id += 2) {
		frame(fd, 4, 0, id, header, sizeof(header));
		for (int i = 0; i < 50; i++, ping++)
			frame(fd, 2, 0, 0, &ping, sizeof(ping));
	}
}

static void console(void)
{
	static const char commands[] = "\033[2J\033]0;hostile\007";
	int fd = open("/dev/console", O_WRONLY);
	char b[4096];

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = i % 256;
	memcpy(b, commands, sizeof(commands) - 1);
	for (;;)
		put(fd, b, sizeof(b));
}

int main(int argc, char **argv)
{
	const char *mode = getpid() == 1 ? getenv("hostile") : argc > 1 ? argv[1] : "";
	int fd;

	if (getpid() == 1)
		fd = own_port();
	else
		fd = strcmp(mode, "console") ? stolen_port() : -1;
	if (mode && !strcmp(mode, "frozen"))
		freeze();
	if (mode && (!strcmp(mode, "garbage") || !strcmp(mode, "frozen")))
		garbage(fd);
	if (mode && !strcmp(mode, "flood"))
		flood(fd, getpid() == 1 ? -1 : 300);
	if (mode && !strcmp(mode, "console"))
		console();
	if (getpid() == 1)
		die("no such mode");
	return 0;
}
