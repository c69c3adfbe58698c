/*
 * What an endpoint reports at its end is one line in one write: a launcher may mix the pieces of
 * several ranks' lines.
 */
#include <fcntl.h>

#include "lists.h"

/* What an endpoint writes to standard error while it is closed, as a pipe. */
static int close_into_pipe(int flags)
{
	static const struct setup plain;
	struct ctx c = { .procs = 1 };
	int err, p[2];

	open_all(&c, &plain);
	err = dup(STDERR_FILENO);
	CHECK(err >= 0);
	OK(pipe2(p, flags | O_CLOEXEC));
	CHECK(dup2(p[1], STDERR_FILENO) >= 0);
	close(p[1]);
	close_all(&c);
	CHECK(dup2(err, STDERR_FILENO) >= 0);
	close(err);
	return p[0];
}

static void report_is_whole(struct ctx *c)
{
	/* Each read returns what one write wrote. */
	int fd = close_into_pipe(O_DIRECT), found = 0;
	char line[4096];
	ssize_t n;

	(void) c;
	while ((n = read(fd, line, sizeof(line) - 1)) > 0) {
		line[n] = 0;
		if (!strstr(line, "channels used: "))
			continue;
		found++;
		CHECK(!strncmp(line, "libfabric:", 10) && strstr(line, ":ivshmem:ep_ctrl:"));
		CHECK(strstr(line, " ranks over the core provider, 0 messages\n"));
		CHECK(strchr(line, '\n') == line + n - 1);
	}
	CHECK(!n && found == 1);
}

/* A rank that was not asked reports nothing. */
static void report_is_asked_for(struct ctx *c)
{
	char byte;

	(void) c;
	CHECK(read(close_into_pipe(0), &byte, 1) == 0);
}

const struct test test_report[] = {
	{ "report_is_whole", 1, report_is_whole, .bare = true,
	  .env = { "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl" } },
	{ "report_is_asked_for", 1, report_is_asked_for, .bare = true,
	  .env = { "FI_LOG_LEVEL=warn", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl" } },
	{ 0 }
};
