/* MPI's rules of one-sided synchronisation and order, each checked by its result. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "epochs.h"
#include "options.h"
#include "summary.h"
#include "values.h"
#include "where.h"

static const char help[] =
	"nm_epochs - check MPI's rules of one-sided synchronisation and order\n"
	"\n"
	"Usage: mpirun -n RANKS nm_epochs [OPTION]...\n"
	"\n"
	"For windows that MPI allocated and for windows over memory of the program's own:\n"
	"  fence asserts           fences in a row, and with every assertion\n"
	"  ring orders groups      post, start, complete, wait: in each order, with empty groups\n"
	"  nocheck test message    and with oneself, with assertions, MPI_Win_test, and messages\n"
	"  parity early            groups that overlap; posts that come before their turn\n"
	"  exclusive shared        locks of one target, of all in turn, among readers\n"
	"  several nolock\n"
	"  flush request           under a lock of all: flush in each form, operations with requests\n"
	"  order atomic swap       accumulates of one origin in order; those of all atomic\n"
	"  mixed                   all kinds of epochs, one after another\n"
	"  crowd                   locks of one target beside locks of all\n"
	"and once each:\n"
	"  two                     two windows at once, the second with the ranks reversed\n"
	"  dynamic                 memory attached and detached\n"
	"  memory                  a shared window: loads and stores beside operations\n"
	"\n"
	"Options:\n"
	"      --bytes N             of a block, 8 to 16MiB (default 40000); a multiple of 8\n"
	"      --rounds N            1 to 100000 (default 10)\n"
	"      --only NAME[,NAME]... run these checks\n"
	"      --leave NAME[,NAME].. run all but these\n"
	"      --seconds N           that a check may take, 1 to 3600 (default 60)\n"
	"  -h, --help                this text\n"
	"\n"
	"Output: lines that start with # say where it ran; then for each kind of window and each\n"
	"check its name and ok, or what was wrong. A check that takes too long ends the program:\n"
	"each rank names the call that it is in.\n"
	"\n"
	"Exit status: 0; 1 if something was wrong; 2 for a wrong option; 3 if a check took too long.\n"
	"\n"
	"Example:\n"
	"  nearmetal run --vms 2 -- mpirun -n 4 ./nm_epochs --only parity,early\n";

static const char *only, *leave;
static long seconds = 60;

const char *volatile stage = "";
static const char *volatile checked = "";
static int own_rank;

void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p) {
		fprintf(stderr, "nm_epochs: out of memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return p;
}

MPI_Aint at(const struct job *j, int rank)
{
	return (MPI_Aint) ((size_t) rank * j->count);
}

MPI_Aint spare(const struct job *j, int s)
{
	return at(j, j->ranks) + s;
}

void clear(struct job *j)
{
	DO(MPI_Barrier(j->comm));
	DO(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, j->rank, 0, j->win));
	memset(j->base, 0, ((size_t) j->ranks * j->count + SPARE) * 8);
	DO(MPI_Win_unlock(j->rank, j->win));
	DO(MPI_Barrier(j->comm));
}

static uint64_t word(int from, uint64_t phase, size_t i)
{
	return ((uint64_t) (unsigned) from + 1) << 48 ^ phase << 32 ^ i;
}

void fill(struct job *j, uint64_t phase)
{
	for (size_t i = 0; i < j->count; i++)
		j->block[i] = word(j->rank, phase, i);
}

bool same(const struct job *j, const uint64_t *words, int from, uint64_t phase)
{
	for (size_t i = 0; i < j->count; i++)
		if (words[i] != word(from, phase, i))
			return false;
	return true;
}

void put(struct job *j, int to)
{
	MPI_Put(j->block, (int) j->count, MPI_UINT64_T, to, at(j, j->rank), (int) j->count, MPI_UINT64_T, j->win);
}

MPI_Group group_of(const struct job *j, int rank)
{
	MPI_Group g;

	MPI_Group_incl(j->all, 1, &rank, &g);
	return g;
}

MPI_Group others(const struct job *j)
{
	MPI_Group g;

	MPI_Group_excl(j->all, 1, &j->rank, &g);
	return g;
}

/* Prints, with only functions that a signal's handler may call. */
static void say(const char *s)
{
	if (write(STDERR_FILENO, s, strlen(s)) < 0)
		_exit(3);
}

static void too_long(int signal)
{
	char digits[] = { (char) ('0' + own_rank / 100 % 10), (char) ('0' + own_rank / 10 % 10),
			  (char) ('0' + own_rank % 10), 0 };

	(void) signal;
	say("nm_epochs: rank ");
	say(digits + (own_rank < 10 ? 2 : own_rank < 100 ? 1 : 0));
	say(": ");
	say(checked);
	say(" took too long; this rank is in ");
	say(stage);
	say("\n");
	/* Other ranks, whose time is also over, print their step before the launcher ends them. */
	sleep(2);
	_exit(3);
}

static bool named(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
			return true;
	return false;
}

/* Runs the checks of a list; false: one of them failed on some rank. */
static bool run(struct job *j, const char *kind, const struct check *checks)
{
	bool all = true;

	for (const struct check *c = checks; c->name; c++) {
		int mine, first;

		if ((only && !named(only, c->name)) || named(leave, c->name))
			continue;
		checked = c->name;
		alarm((unsigned) seconds);
		mine = c->run(j) ? j->ranks : j->rank;
		DO(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, j->comm));
		if (j->rank == 0 && first < j->ranks)
			printf("%-9s %-9s wrong, first on rank %d\n", kind, c->name, first);
		else if (j->rank == 0)
			printf("%-9s %-9s ok\n", kind, c->name);
		fflush(stdout);
		all = all && first == j->ranks;
		if (j->win != MPI_WIN_NULL)
			clear(j);
		alarm(0);
	}
	return all;
}

static bool window(struct job *j, bool create)
{
	size_t bytes = ((size_t) j->ranks * j->count + SPARE) * 8;
	void *own = NULL;
	bool ok;

	if (create) {
		own = allocate(bytes);
		j->base = own;
		MPI_Win_create(own, (MPI_Aint) bytes, 8, MPI_INFO_NULL, j->comm, &j->win);
	} else {
		MPI_Win_allocate((MPI_Aint) bytes, 8, MPI_INFO_NULL, j->comm, &j->base, &j->win);
	}
	clear(j);
	ok = run(j, create ? "created" : "allocated", active_checks);
	ok = run(j, create ? "created" : "allocated", passive_checks) && ok;
	alarm((unsigned) seconds);
	checked = "the window's end";
	DO(MPI_Win_free(&j->win));
	alarm(0);
	free(own);
	return ok;
}

static bool known(const char *list)
{
	const struct check *const lists[] = { active_checks, passive_checks, window_checks };
	char one[64];

	for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
		size_t n = strcspn(p, ",");
		bool found = false;

		snprintf(one, sizeof(one), "%.*s", (int) (n < sizeof(one) ? n : sizeof(one) - 1), p);
		for (size_t k = 0; k < sizeof(lists) / sizeof(*lists); k++)
			for (const struct check *c = lists[k]; c->name; c++)
				found = found || !strcmp(c->name, one);
		if (!found) {
			complain("there is no check %s; see --help", one);
			return false;
		}
	}
	return true;
}

/* Returns -1 to continue, else the status to exit with. */
static int read_options(struct job *j, uint64_t *bytes, int argc, char **argv)
{
	static const struct option options[] = {
		{ "bytes", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "only", required_argument, NULL, 'o' },
		{ "leave", required_argument, NULL, 'l' },
		{ "seconds", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, status;

	while ((c = next_option(argc, argv, "h", options, help, &status)) >= 0) {
		switch (c) {
		case 'b':
			if (!value_size("bytes", optarg, 8, 16 << 20, bytes))
				return 2;
			break;
		case 'r':
			if (!value_count("rounds", optarg, 1, 100000, &j->rounds))
				return 2;
			break;
		case 'o': only = optarg; break;
		case 'l': leave = optarg; break;
		case 's':
			if (!value_count("seconds", optarg, 1, 3600, &seconds))
				return 2;
			break;
		}
	}
	if (status >= 0)
		return status;
	if (*bytes % 8) {
		complain("--bytes: %" PRIu64 " is not a multiple of 8", *bytes);
		return 2;
	}
	return known(only) && known(leave) ? -1 : 2;
}

int main(int argc, char **argv)
{
	struct job j = { .rounds = 10, .win = MPI_WIN_NULL };
	char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
	uint64_t bytes = 40000;
	int status, len;
	bool ok;

	program_name("nm_epochs");
	status = read_options(&j, &bytes, argc, argv);
	if (status >= 0)
		return status;
	MPI_Init(&argc, &argv);
	j.comm = MPI_COMM_WORLD;
	MPI_Comm_rank(j.comm, &j.rank);
	MPI_Comm_size(j.comm, &j.ranks);
	MPI_Comm_group(j.comm, &j.all);
	own_rank = j.rank;
	signal(SIGALRM, too_long);
	MPI_Get_processor_name(name, &len);
	if (j.rank == 0)
		printf("# nm_epochs: %d ranks, blocks of %" PRIu64 " bytes, rank 0 on %s%s\n", j.ranks, bytes, name,
		       emulated() ? " (emulated)" : "");
	j.count = bytes / 8;
	j.block = allocate(bytes);
	ok = window(&j, false);
	ok = window(&j, true) && ok;
	ok = run(&j, "own", window_checks) && ok;
	free(j.block);
	MPI_Group_free(&j.all);
	checked = "MPI_Finalize";
	alarm((unsigned) seconds);
	DO(MPI_Finalize());
	return ok ? 0 : 1;
}
