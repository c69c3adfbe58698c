#include "owndisk.h"
#include "devices.h"
#include "init.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN "/run/nearmetal"

static char self[4096];

/* Becomes root by sudo if another user runs it and sudo needs no password. */
static void be_root(const char *name)
{
	if (!geteuid())
		return;
	execlp("sudo", "sudo", "-n", "--", self, "--stdio", name, (char *) NULL);
	die("another user than root needs sudo: %s", strerror(errno));
}

static void read_beside(struct config *c, const char *name)
{
	static char text[CONFIG_MAX + 1];
	char path[sizeof(self) + NAME_SIZE], why[256], *dir_end;
	size_t n = 0;
	ssize_t got;
	int fd;

	if (strchr(name, '/') || strlen(name) >= NAME_SIZE)
		die("%.64s: no name of a configuration", name);
	strcpy(path, self);
	dir_end = strrchr(path, '/');
	strcpy(dir_end + 1, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	while (n < sizeof(text) - 1 && (got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += got;
	close(fd);
	unlink(path); /* it is for this start only */
	fd = open(RUN "/config", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, n) != (ssize_t) n)
		die(RUN "/config: %s", strerror(errno));
	close(fd);
	if (!config_parse(c, text, n, why, sizeof(why)))
		die("%s: %s", path, why);
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) && errno != EEXIST)
		die("%s: %s", path, strerror(errno));
}

/* Copies this program, which is also nearmetal-rsh. */
static void copy_self(const char *to)
{
	char b[65536];
	int in = open(self, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
	ssize_t n;

	if (in < 0 || out < 0)
		die("%s: %s", to, strerror(errno));
	while ((n = read(in, b, sizeof(b))) > 0)
		if (write(out, b, n) != n)
			die("%s: %s", to, strerror(errno));
	close(in);
	if (close(out) || n < 0)
		die("%s: %s", to, strerror(errno));
}

/* Mounts the names of all VMs over the disk's own file, so that nothing on the disk changes. */
static void hosts_over(const struct config *c)
{
	hosts_write(c, "/etc/hosts", RUN "/etc-hosts");
	if (mount(RUN "/etc-hosts", "/etc/hosts", NULL, MS_BIND, NULL))
		die("/etc/hosts: %s", strerror(errno));
}

/* Writes all bytes, to a descriptor in blocking mode. */
static bool write_all(int fd, const char *b, ssize_t n)
{
	while (n > 0) {
		ssize_t m = write(fd, b, n);

		if (m < 0 && errno == EINTR)
			continue;
		if (m <= 0)
			return false;
		b += m;
		n -= m;
	}
	return true;
}

/* Copies bytes in one direction until either end closes. */
static void carry(int from, int to)
{
	static char b[65536];
	ssize_t n;

	while ((n = read(from, b, sizeof(b))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && !write_all(to, b, n))
			return;
}

/* One process per direction, so that neither can delay the other. */
static void pump(int channel) __attribute__((noreturn));

static void pump(int channel)
{
	pid_t pid;

	signal(SIGPIPE, SIG_IGN);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (!pid) {
		close(STDOUT_FILENO);
		carry(STDIN_FILENO, channel);
		shutdown(channel, SHUT_WR); /* the owner has gone: the agent ends */
		_exit(0);
	}
	carry(channel, STDOUT_FILENO);
	kill(pid, SIGKILL);
	_exit(0);
}

int owndisk_begin(struct config *c, const char *name)
{
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int fds[2], null;
	pid_t pid;

	if (n <= 0 || self[0] != '/')
		die("/proc/self/exe: %s", strerror(errno));
	self[n] = 0;
	be_root(name);
	umask(022);
	make_dir(RUN);
	make_dir(RUN "/bin");
	read_beside(c, name);
	copy_self(RUN "/bin/nearmetal-rsh");
	hosts_over(c);
	if (c->nfunctions || c->nrdmas)
		devices_up(c);
	limits();
	unlink(RUN "/agent.sock");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid) {
		close(fds[1]);
		pump(fds[0]);
	}
	close(fds[0]);
	/* A rank's output is sent only over the channel. */
	null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		die("/dev/null: %s", strerror(errno));
	if (null > 2)
		close(null);
	setsid(); /* the end of ssh's session ends the pump; the agent ends with its channel */
	fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	return fds[1];
}
