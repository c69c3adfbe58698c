/* Tests of the UCX transport: ranks are processes over a region of their own, on whichever UCX the loader finds. */
#ifndef TEST_UCX_HARNESS_H
#define TEST_UCX_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX   4
#define ADDRESS_MAX 2048

/* Does UCX 1.minor take memory of the region? As in ucx/abi/abi.h. */
#define HAS_WINDOW(minor) ((minor) <= 15 || (minor) >= 19)

/* What the processes of a test share beside the region. */
struct shared {
	uint32_t phase; /* of the barrier */
	uint32_t arrived;
	uint32_t flag[8]; /* for the tests */
	size_t address_len[RANKS_MAX];
	uint8_t address[RANKS_MAX][ADDRESS_MAX];
};

extern struct shared *shared;
extern int rank, ranks;

/* Ends the process with a line that says where and what, unless it holds. */
#define EXPECT(what) \
	do { \
		if (!(what)) \
			fail(__FILE__, __LINE__, #what); \
	} while (0)

void fail(const char *file, int line, const char *what) __attribute__((noreturn));

/* Makes a region of that many MiB, and starts fn as this many ranks. Returns when all have ended; by a signal
 * only if may_die says so. */
void run(const char *name, int count, size_t mib, void (*fn)(void), bool may_die);
/* All ranks come here before any goes on. progress, if not NULL, is called meanwhile. */
void barrier(void (*progress)(void));
/* Seconds since a test began; a test that takes over 60 is ended. */
const char *region_path(void);
uint32_t random_number(void);

#endif
