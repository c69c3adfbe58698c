/* An endpoint's report at its end is one line in one write: a launcher may mix the pieces of several ranks' lines. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "lists.h"

/* Returns a pipe with the output of an endpoint to standard error while it is closed. */
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
	/* Each read returns the data of one write. */
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
		CHECK(strstr(line, " ranks over the core provider, 0 messages, 0 direct reads\n"));
		CHECK(strchr(line, '\n') == line + n - 1);
	}
	CHECK(!n && found == 1);
}

/* A rank reports nothing unless asked. */
static void report_is_asked_for(struct ctx *c)
{
	char byte;

	(void) c;
	CHECK(read(close_into_pipe(0), &byte, 1) == 0);
}

/* The directory of counts of all the test's processes. */
static const char *traffic_dir(void)
{
	static char dir[64];

	snprintf(dir, sizeof(dir), "/tmp/nearmetal-test-%d", (int) getppid());
	return dir;
}

/* Returns the contents of this process's only file there. */
static char *traffic_file(const char *dir)
{
	static char text[4096];
	char own[32], path[400];
	int fd, found = 0;
	struct dirent *e;
	struct stat st;
	ssize_t n = 0;
	DIR *d = opendir(dir);

	CHECK(d);
	snprintf(own, sizeof(own), ".%d.", (int) getpid());
	while ((e = readdir(d))) {
		if (!strstr(e->d_name, own))
			continue;
		found++;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		OK(fstat(fd, &st));
		CHECK((st.st_mode & 07777) == 0600);
		n = read(fd, text, sizeof(text) - 1);
		CHECK(n > 0);
		text[n] = 0;
		close(fd);
		OK(unlink(path));
	}
	closedir(d);
	CHECK(found == 1);
	return text;
}

/* Every kind of operation is counted once, by channel, bytes and size class, at the rank that starts it. */
static void traffic_counts(struct ctx *c)
{
	static const struct setup plain;
	static uint8_t small[64], large[1 << 20], target[4096];
	struct iovec iov[2] = { { small, 60 }, { small, 5 } };
	uint64_t one = 1, *key = shared();
	const char *dir = traffic_dir(), *off = getenv("FI_IVSHMEM_CMA");
	struct fid_mr *mr;
	char *text;
	int i;

	setenv("NEARMETAL_TRAFFIC", dir, 1);
	setenv("PMI_RANK", c->rank ? "1" : "0", 1);
	open_all(c, &plain);
	exchange(c);
	OK(fi_mr_reg(c->domain, target, sizeof(target), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, (uint64_t) c->rank + 1, 0,
		     &mr, NULL));
	key[c->rank] = fi_mr_key(mr);
	barrier(c);
	if (c->rank) {
		for (i = 0; i < 6; i++)
			RETRY(c, fi_trecv(c->ep, large, sizeof(large), NULL, c->peer[0], 7, 0, NULL));
		RETRY(c, fi_recv(c->ep, small, sizeof(small), NULL, c->peer[0], NULL));
		for (i = 0; i < 7; i++)
			wait_comp(c, c->rxcq);
	} else {
		RETRY(c, fi_tsenddata(c->ep, small, 0, NULL, 1, c->peer[1], 7, NULL));
		RETRY(c, fi_tinjectdata(c->ep, small, 63, 1, c->peer[1], 7));
		RETRY(c, fi_tsend(c->ep, small, 64, NULL, c->peer[1], 7, NULL));
		RETRY(c, fi_tsendv(c->ep, iov, NULL, 2, c->peer[1], 7, NULL));
		RETRY(c, fi_tinject(c->ep, small, 8, c->peer[1], 7));
		RETRY(c, fi_tsend(c->ep, large, sizeof(large), NULL, c->peer[1], 7, NULL));
		RETRY(c, fi_send(c->ep, small, 9, NULL, c->peer[1], NULL));
		RETRY(c, fi_write(c->ep, small, 16, NULL, c->peer[1], 0, key[1], NULL));
		RETRY(c, fi_atomic(c->ep, &one, 1, NULL, c->peer[1], 0, key[1], FI_UINT64, FI_SUM, NULL));
		for (i = 0; i < 7; i++)
			wait_comp(c, c->txcq);
	}
	barrier(c);
	OK(fi_close(&mr->fid));
	close_all(c);
	text = traffic_file(dir);
	CHECK(!strncmp(text, c->rank ? "nearmetal-traffic 1\nself 1 " : "nearmetal-traffic 1\nself 0 ", 27));
	CHECK(!strcmp(text + strlen(text) - 5, "\nend\n"));
	if (c->rank) {
		CHECK(!strstr(text, "\nto "));
	} else {
		CHECK(strstr(text, "\nto slot:"));
		/*
		 * Eight small ones and 1 MiB; that one and the write are copied from memory to memory unless this is
		 * turned off.
		 */
		if (off)
			CHECK(strstr(text, " region 1048809 7 1 0 0 1 0\n") && !strstr(text, " cma "));
		else
			CHECK(strstr(text, " region 217 6 1 0 0 0 0\n") && strstr(text, " cma 1048592 1 0 0 0 1 0\n"));
	}
	barrier(c);
	if (!c->rank)
		OK(rmdir(dir));
}

/* Nothing is written to a directory that others may write to. */
static void traffic_refuses(struct ctx *c)
{
	static const struct setup plain;
	const char *dir = traffic_dir();

	(void) c;
	OK(mkdir(dir, 0700));
	OK(chmod(dir, 0777));
	setenv("NEARMETAL_TRAFFIC", dir, 1);
	struct ctx own = { .procs = 1 };

	open_all(&own, &plain);
	close_all(&own);
	OK(rmdir(dir)); /* it is empty */
}

const struct test test_report[] = {
	{ "report_is_whole", 1, report_is_whole, .bare = true,
	  .env = { "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl" } },
	{ "report_is_asked_for", 1, report_is_asked_for, .bare = true,
	  .env = { "FI_LOG_LEVEL=warn", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl" } },
	{ "traffic_counts", 2, traffic_counts, .bare = true, .env = { "FI_IVSHMEM_CMA=0" } },
	{ "traffic_counts_cma", 2, traffic_counts, .bare = true, .env = { "FI_IVSHMEM_CMA_MIN=65536" } },
	{ "traffic_refuses", 1, traffic_refuses, .bare = true },
	{ 0 }
};
