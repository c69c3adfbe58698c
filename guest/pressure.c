/* Decides when to count the inodes that the VM knows, and when to drop them, by their number. */
#include "inodes.h"

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void inodes_init(struct inodes *i, uint64_t max)
{
	*i = (struct inodes) { .limit = max, .bound = max / 2 };
}

uint64_t inodes_count(const struct inodes *i, uint64_t n)
{
	uint64_t late, wait;

	if (n >= i->bound)
		return 0;
	/*
	 * At the next count half of the room above the bound is left, however fast inodes are added: it is reserved
	 * for the duration of a drop.
	 */
	late = i->bound < i->limit ? i->bound + (i->limit - i->bound) / 2 : i->bound;
	wait = most((late - n) * (1000000000 / INODES_PER_SECOND), INODES_LEAST);
	return wait < INODES_MOST ? wait : INODES_MOST;
}

uint64_t inodes_dropped(struct inodes *i, uint64_t n)
{
	uint64_t room = n < i->limit ? i->limit - n : 0;

	/*
	 * The remaining inodes are in use, or were added during the drop. They are not dropped again before more are
	 * added.
	 */
	i->bound = most(i->limit / 2, n + most(room / 4, i->limit / 64));
	return inodes_count(i, n);
}
