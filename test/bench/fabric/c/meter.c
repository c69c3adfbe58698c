#include "meter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

const size_t meter_latency_sizes[] = { 0, 8, 32, 64, 128, 256, 512, 1024, 4096, 8192, 16384, 65536, 262144, 1048576 };
const size_t meter_bandwidth_sizes[] = { 4096,	 8192,	 16384,	  32768,   65536,   131072,
					 262144, 524288, 1048576, 2097152, 4194304, 8388608 };
const int meter_latency_count = sizeof(meter_latency_sizes) / sizeof(size_t);
const int meter_bandwidth_count = sizeof(meter_bandwidth_sizes) / sizeof(size_t);

bool meter_yields;

void *meter_shared(size_t bytes)
{
	const char *file = getenv("METER_RANK") ? getenv("METER_SHARED") : NULL;
	int fd = -1;
	void *at;

	meter_yields = getenv("METER_YIELD");
	if (file) {
		fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || posix_fallocate(fd, 0, (off_t) bytes))
			return NULL;
	}
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (file ? 0 : MAP_ANONYMOUS), fd, 0);
	if (file)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

int meter_ranks(pid_t *child)
{
	const char *given = getenv("METER_RANK");
	pid_t parent = getpid();

	*child = 0;
	if (given)
		return atoi(given) == 1;
	*child = fork();
	if (*child)
		return *child < 0 ? -1 : 0;
	/* No rank spins for one that is gone. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 1;
}

void meter_pin(int index)
{
	cpu_set_t set, all;
	int i, seen = 0;

	sched_getaffinity(0, sizeof(all), &all);
	/* A launcher has bound this process already. */
	if (CPU_COUNT(&all) == 1)
		return;
	CPU_ZERO(&set);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && seen++ == index % CPU_COUNT(&all))
			CPU_SET(i, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void meter_realtime(void)
{
	struct rlimit limit = { 60000000, 60000000 }; /* us of running without a pause */
	struct sched_param p = { .sched_priority = 1 };

	if (!getenv("NO_REALTIME") && !setrlimit(RLIMIT_RTTIME, &limit))
		sched_setscheduler(0, SCHED_FIFO, &p);
}

void meter_normal(void)
{
	struct sched_param p = { .sched_priority = 0 };

	sched_setscheduler(0, SCHED_OTHER, &p);
}

double meter_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}

long meter_count(double us, long count, double want_us, long least)
{
	double n = us > 0 ? want_us * (double) count / us : (double) least;

	return n < (double) least ? least : n > 1e6 ? 1000000 : (long) n;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *) a, y = *(const double *) b;

	return (x > y) - (x < y);
}

double meter_median(double *values, int n)
{
	qsort(values, (size_t) n, sizeof(*values), compare);
	return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

int meter_window(size_t len)
{
	size_t n = len ? (64UL << 20) / len : METER_WINDOW;

	return n > METER_WINDOW ? METER_WINDOW : (int) n;
}

void meter_print(const char *what, size_t len, double value)
{
	printf("%s %zu %.5g\n", what, len, value);
}
