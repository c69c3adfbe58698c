/*
 * Simulates code in a compromised QEMU. It is loaded into QEMU before QEMU starts, waits until QEMU has enabled its
 * filter, tries one system call, prints the result, and ends QEMU.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <netinet/in.h>
#include <unistd.h>

static long try(const char *what, const char *with)
{
	char *argv[] = { (char *) with, "--version", NULL };

	if (!strcmp(what, "none"))
		return 0;
	if (!strcmp(what, "exec"))
		return execve(with, argv, NULL);
	if (!strcmp(what, "fork"))
		return syscall(SYS_fork);
	if (!strcmp(what, "setuid"))
		return syscall(SYS_setuid, 0);
	if (!strcmp(what, "mount"))
		return mount("none", "/dev", "tmpfs", 0, NULL);
	if (!strcmp(what, "reboot"))
		return syscall(SYS_reboot, 0, 0, 0, NULL); /* wrong magic numbers: it never reboots */
	if (!strcmp(what, "ptrace"))
		return ptrace(PTRACE_SEIZE, atoi(with), NULL, NULL);
	if (!strcmp(what, "open"))
		return open(with, O_RDONLY);
	if (!strcmp(what, "connect")) {
		struct sockaddr_in a = { .sin_family = AF_INET,
					 .sin_port = htons((uint16_t) atoi(with)),
					 .sin_addr = { htonl(INADDR_LOOPBACK) } };
		int s = socket(AF_INET, SOCK_STREAM, 0);

		return s < 0 ? s : connect(s, (struct sockaddr *) &a, sizeof(a));
	}
	errno = EINVAL;
	return -1;
}

static void *attack(void *what)
{
	const char *with = getenv("NM_ATTACK_WITH");

	while (prctl(PR_GET_SECCOMP) != 2)
		sched_yield();
	long rc = try(what, with ? with : "");
	dprintf(2, "attack %s: %s\n", (char *) what, rc < 0 ? strerror(errno) : "done");
	_exit(77);
}

__attribute__((constructor)) static void begin(void)
{
	char *what = getenv("NM_ATTACK");
	pthread_t t;

	if (what && strstr(program_invocation_short_name, "qemu"))
		pthread_create(&t, NULL, attack, what);
}
