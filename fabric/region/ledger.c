#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region/ledger.h"

#define LEDGER_BYTES ((sizeof(struct ivs_ledger) + NM_LAYOUT_PAGE - 1) / NM_LAYOUT_PAGE * NM_LAYOUT_PAGE)
#define LEDGER_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Initializes the mutex. Returns false if the kernel has no robust mutexes. */
static bool make_life(pthread_mutex_t *life)
{
	pthread_mutexattr_t attr;
	bool made;

	if (pthread_mutexattr_init(&attr))
		return false;
	made = !pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) &&
	       !pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) && !pthread_mutex_init(life, &attr);
	pthread_mutexattr_destroy(&attr);
	return made;
}

struct ivs_ledger *ivs_ledger_make(void)
{
	int fd = memfd_create("nearmetal-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct ivs_ledger *ledger;
	void *map = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, LEDGER_BYTES) && !fcntl(fd, F_ADD_SEALS, LEDGER_SEALS))
		map = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED || !make_life(&((struct ivs_ledger *) map)->life)) {
		if (map != MAP_FAILED)
			munmap(map, LEDGER_BYTES);
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	/* A child of fork does not own it. */
	madvise(map, LEDGER_BYTES, MADV_DONTFORK);
	ledger = map;
	ledger->proof.ledger = fd;
	return ledger;
}

void ivs_ledger_free(struct ivs_ledger *ledger)
{
	int fd;

	if (!ledger)
		return;
	fd = ledger->proof.ledger;
	pthread_mutex_destroy(&ledger->life);
	munmap(ledger, LEDGER_BYTES);
	close(fd);
}

void ivs_ledger_hold(struct ivs_ledger *ledger)
{
	pthread_mutex_lock(&ledger->life);
}

void ivs_ledger_release(struct ivs_ledger *ledger)
{
	pthread_mutex_unlock(&ledger->life);
}

bool ivs_ledger_held(const struct ivs_ledger *ledger)
{
	/*
	 * The word that the kernel and the C library share (get_robust_list(2)): the id of the owning thread, and
	 * flags.
	 */
	return __atomic_load_n(&ledger->life.__data.__lock, __ATOMIC_ACQUIRE) & FUTEX_TID_MASK;
}

const struct ivs_ledger *ivs_ledger_map(int pid, const struct nm_proof *proof)
{
	char path[64];
	void *map = MAP_FAILED;
	int file, seals;

	if (pid <= 0 || proof->ledger < 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, proof->ledger);
	file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return NULL;
	/* Its size is sealed, so that reading it never faults. */
	seals = fcntl(file, F_GET_SEALS);
	if (seals >= 0 && (seals & LEDGER_SEALS) == LEDGER_SEALS && lseek(file, 0, SEEK_END) == LEDGER_BYTES)
		map = mmap(NULL, LEDGER_BYTES, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (map == MAP_FAILED)
		return NULL;
	madvise(map, LEDGER_BYTES, MADV_DONTFORK);
	if (!memcmp(&((struct ivs_ledger *) map)->proof, proof, sizeof(*proof)))
		return map;
	ivs_ledger_unmap(map);
	return NULL;
}

void ivs_ledger_unmap(const struct ivs_ledger *ledger)
{
	if (ledger)
		munmap((void *) (uintptr_t) ledger, LEDGER_BYTES);
}
