#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region/ledger.h"

#define LEDGER_BYTES	((sizeof(struct ivs_ledger) + NM_LAYOUT_PAGE - 1) / NM_LAYOUT_PAGE * NM_LAYOUT_PAGE)
#define LEDGER_SEALS	(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct ivs_ledger *ivs_ledger_make(int *fd)
{
	void *map = MAP_FAILED;

	*fd = memfd_create("nearmetal-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd >= 0 && !ftruncate(*fd, LEDGER_BYTES) && !fcntl(*fd, F_ADD_SEALS, LEDGER_SEALS))
		map = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (map == MAP_FAILED) {
		if (*fd >= 0)
			close(*fd);
		*fd = -1;
		return NULL;
	}
	/* A child of fork is not its owner. */
	madvise(map, LEDGER_BYTES, MADV_DONTFORK);
	return map;
}

void ivs_ledger_free(struct ivs_ledger *ledger, int fd)
{
	if (!ledger)
		return;
	munmap(ledger, LEDGER_BYTES);
	close(fd);
}

const struct ivs_ledger *ivs_ledger_map(int pid, int fd)
{
	char path[64];
	void *map = MAP_FAILED;
	int file, seals;

	if (pid <= 0 || fd < 0)
		return NULL;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return NULL;
	/* Its size is for good, so that reading it never faults. */
	seals = fcntl(file, F_GET_SEALS);
	if (seals >= 0 && (seals & LEDGER_SEALS) == LEDGER_SEALS &&
	    lseek(file, 0, SEEK_END) == LEDGER_BYTES)
		map = mmap(NULL, LEDGER_BYTES, PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (map == MAP_FAILED)
		return NULL;
	madvise(map, LEDGER_BYTES, MADV_DONTFORK);
	return map;
}

void ivs_ledger_unmap(const struct ivs_ledger *ledger)
{
	if (ledger)
		munmap((void *) (uintptr_t) ledger, LEDGER_BYTES);
}
