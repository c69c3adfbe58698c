#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nearmetal/region.h>

#include "harness.h"

struct shared *shared;
int rank, ranks;
static char path[64];
static uint32_t state = 1;

void fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: rank %d: expected %s\n", file, line, rank, what);
	_exit(1);
}

uint32_t random_number(void)
{
	state = state * 1664525 + 1013904223;
	return state >> 8;
}

const char *region_path(void)
{
	return path;
}

/* As nearmetal makes one. */
static void make_region(size_t mib)
{
	struct nm_region_header h = { .version = NM_REGION_VERSION, .header_bytes = NM_REGION_HEADER_BYTES };
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/nearmetal-test-ucx-XXXXXX");
	fd = mkstemp(path);
	memcpy(h.magic, NM_REGION_MAGIC, sizeof(h.magic));
	h.size_bytes = (uint64_t) mib << 20;
	h.scratch_offset = h.layout_offset = NM_REGION_HEADER_BYTES;
	h.layout_bytes = h.size_bytes - NM_REGION_HEADER_BYTES;
	EXPECT(fd >= 0 && getrandom(h.key, sizeof(h.key), 0) == sizeof(h.key));
	h.crc = nm_region_crc32c(&h, offsetof(struct nm_region_header, crc));
	EXPECT(!ftruncate(fd, (off_t) h.size_bytes) && pwrite(fd, &h, sizeof(h), 0) == sizeof(h));
	close(fd);
	setenv("NEARMETAL_REGION", path, 1);
}

void barrier(void (*progress)(void))
{
	uint32_t phase = __atomic_load_n(&shared->phase, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t) ranks) {
		__atomic_store_n(&shared->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&shared->phase, phase + 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&shared->phase, __ATOMIC_ACQUIRE) == phase) {
		if (progress)
			progress();
		sched_yield();
	}
}

void run(const char *name, int count, size_t mib, void (*fn)(void), bool may_die)
{
	pid_t pids[RANKS_MAX];
	int i, status;

	make_region(mib);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(shared != MAP_FAILED);
	ranks = count;
	for (i = 0; i < count; i++) {
		pids[i] = fork();
		EXPECT(pids[i] >= 0);
		if (!pids[i]) {
			rank = i;
			state = (uint32_t) i + 1;
			alarm(120);
			fn();
			exit(0);
		}
	}
	for (i = 0; i < count; i++) {
		EXPECT(waitpid(pids[i], &status, 0) == pids[i]);
		if (WIFSIGNALED(status) && may_die && WTERMSIG(status) == SIGKILL)
			continue;
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "%s: rank %d ended with status 0x%x\n", name, i, (unsigned int) status);
			unlink(path);
			exit(1);
		}
	}
	unlink(path);
	munmap(shared, sizeof(*shared));
	printf("ok: %s\n", name);
	fflush(stdout);
}
