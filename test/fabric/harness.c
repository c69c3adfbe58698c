#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <nearmetal/region.h>

#include "harness.h"

static struct {
	_Alignas(64) uint32_t arrived;
	_Alignas(64) uint32_t phase;
	uint8_t addr[MAX_PROCS][64];
	_Alignas(4096) uint8_t memory[SHARED_BYTES];
} *common;

static const char *test_name;
static int test_rank;

void fail(const char *file, int line, const char *what, long long err)
{
	fprintf(stderr, "%s:%d: test %s, process %d: %s", file, line, test_name, test_rank, what);
	if (err)
		fprintf(stderr, ": %lld (%s)", err, fi_strerror((int) (err < 0 ? -err : err)));
	fputc('\n', stderr);
	_exit(1);
}

int patience(void)
{
	const char *text = getenv("FABRIC_PATIENCE");
	int n = text ? atoi(text) : 1;

	return n > 1 ? n : 1;
}

void *shared(void)
{
	return common->memory;
}

void progress(struct ctx *c)
{
	struct fi_cq_tagged_entry e;

	if (c->rxcq)
		fi_cq_read(c->rxcq, &e, 0);
	sched_yield();
}

void barrier(struct ctx *c)
{
	uint32_t phase = __atomic_load_n(&common->phase, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&common->arrived, 1, __ATOMIC_ACQ_REL) == (uint32_t) c->procs) {
		__atomic_store_n(&common->arrived, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&common->phase, phase + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&common->phase, __ATOMIC_ACQUIRE) == phase)
		progress(c);
}

struct fi_cq_tagged_entry wait_comp_src(struct ctx *c, struct fid_cq *cq, fi_addr_t *src)
{
	struct fi_cq_tagged_entry e;
	ssize_t n;

	memset(&e, 0, sizeof(e));
	while ((n = fi_cq_readfrom(cq, &e, 1, src)) == -FI_EAGAIN)
		progress(c);
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = { 0 };

		fi_cq_readerr(cq, &err, 0);
		fail(__FILE__, __LINE__, "a completion without error", err.err);
	}
	CHECK(n == 1);
	return e;
}

struct fi_cq_tagged_entry wait_comp(struct ctx *c, struct fid_cq *cq)
{
	return wait_comp_src(c, cq, NULL);
}

struct fi_cq_err_entry wait_err(struct ctx *c, struct fid_cq *cq)
{
	/* Room for fields that newer versions of libfabric write after it. */
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct fi_cq_tagged_entry e;
	ssize_t n;

	while ((n = fi_cq_read(cq, &e, 1)) == -FI_EAGAIN)
		progress(c);
	CHECK(n == -FI_EAVAIL);
	memset(&err, 0, sizeof(err));
	CHECK(fi_cq_readerr(cq, &err.e, 0) == 1);
	return err.e;
}

uint8_t *map_layout(struct nm_layout_geometry *geo)
{
	int fd = open(getenv("FI_IVSHMEM_REGION"), O_RDWR);
	struct nm_region_header h;
	struct stat st;
	uint8_t *map, *layout;

	CHECK(fd >= 0 && !fstat(fd, &st));
	map = mmap(NULL, (size_t) st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED && !nm_region_read(map, (uint64_t) st.st_size, &h));
	close(fd);
	layout = map + h.layout_offset;
	CHECK(!nm_layout_geometry(((struct nm_layout_head *) (void *) layout)->geometry, h.layout_bytes, geo));
	return layout;
}

void fill(void *buf, size_t len, unsigned int seed)
{
	uint8_t *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t) (seed * 37 + i * 7 + (i >> 8) * 13);
}

bool filled(const void *buf, size_t len, unsigned int seed)
{
	const uint8_t *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != (uint8_t) (seed * 37 + i * 7 + (i >> 8) * 13))
			return false;
	return true;
}

struct fi_info *get_info(const struct setup *s)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	CHECK(hints);
	hints->fabric_attr->prov_name = strdup("ivshmem");
	hints->caps = s->caps ? s->caps
			      : FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = s->threading ? s->threading : FI_THREAD_DOMAIN;
	hints->domain_attr->av_type = s->av_type ? s->av_type : FI_AV_TABLE;
	hints->tx_attr->op_flags = s->tx_op_flags;
	OK(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static struct fid_cntr *cntr(struct ctx *c, uint64_t flags)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;

	OK(fi_cntr_open(c->domain, &attr, &cntr, NULL));
	OK(fi_ep_bind(c->ep, &cntr->fid, flags));
	return cntr;
}

void open_all(struct ctx *c, const struct setup *s)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = s->wait_obj, .size = s->cq_size };
	struct fi_av_attr av = { .type = s->av_type ? s->av_type : FI_AV_TABLE };
	uint64_t selective = s->selective ? FI_SELECTIVE_COMPLETION : 0;

	c->info = get_info(s);
	OK(fi_fabric(c->info->fabric_attr, &c->fabric, NULL));
	OK(fi_domain(c->fabric, c->info, &c->domain, NULL));
	OK(fi_av_open(c->domain, &av, &c->av, NULL));
	OK(fi_cq_open(c->domain, &cq, &c->txcq, NULL));
	OK(fi_cq_open(c->domain, &cq, &c->rxcq, NULL));
	OK(fi_endpoint(c->domain, c->info, &c->ep, NULL));
	OK(fi_ep_bind(c->ep, &c->av->fid, 0));
	OK(fi_ep_bind(c->ep, &c->txcq->fid, FI_TRANSMIT | selective));
	OK(fi_ep_bind(c->ep, &c->rxcq->fid, FI_RECV | selective));
	if (s->counters) {
		c->tx_cntr = cntr(c, FI_SEND);
		c->rx_cntr = cntr(c, FI_RECV);
		c->rd_cntr = cntr(c, FI_READ);
		c->wr_cntr = cntr(c, FI_WRITE);
	}
	OK(fi_enable(c->ep));
}

void exchange(struct ctx *c)
{
	size_t len = sizeof(common->addr[0]);
	int i;

	OK(fi_getname(&c->ep->fid, common->addr[c->rank], &len));
	CHECK(len == 64);
	barrier(c);
	for (i = 0; i < c->procs; i++)
		CHECK(fi_av_insert(c->av, common->addr[i], 1, &c->peer[i], 0, NULL) == 1);
	barrier(c);
}

void close_all(struct ctx *c)
{
	OK(fi_close(&c->ep->fid));
	OK(fi_close(&c->av->fid));
	OK(fi_close(&c->txcq->fid));
	OK(fi_close(&c->rxcq->fid));
	if (c->tx_cntr) {
		OK(fi_close(&c->tx_cntr->fid));
		OK(fi_close(&c->rx_cntr->fid));
		OK(fi_close(&c->rd_cntr->fid));
		OK(fi_close(&c->wr_cntr->fid));
	}
	OK(fi_close(&c->domain->fid));
	OK(fi_close(&c->fabric->fid));
	fi_freeinfo(c->info);
	/* A later barrier has no queues to read. */
	c->txcq = c->rxcq = NULL;
}

/* Returns the path of a host's region, in tests with several hosts. */
static const char *host_region(const char *region, int host)
{
	static char name[128];

	snprintf(name, sizeof(name), "%s-%d", region, host);
	return name;
}

static void child(const struct test *t, int rank, const char *region)
{
	struct ctx c = { .rank = rank, .procs = t->procs };
	char number[16];
	size_t i;

	test_rank = rank;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 0; i < sizeof(t->env) / sizeof(t->env[0]) && t->env[i]; i++)
		putenv((char *) (uintptr_t) t->env[i]);
	if (t->per_host && getenv("FABRIC_CORE"))
		setenv("FI_IVSHMEM_CORE", getenv("FABRIC_CORE"), 1);
	/* Each rank uses its own of several devices (FI_IVSHMEM_DEVICES). */
	snprintf(number, sizeof(number), "%d", rank);
	setenv("MPI_LOCALRANKID", number, 1);
	if (t->per_host)
		setenv("FI_IVSHMEM_REGION", host_region(region, rank / t->per_host), 1);
	if (!t->bare) {
		open_all(&c, &t->setup);
		exchange(&c);
	}
	t->run(&c);
	if (!t->bare) {
		/* No process ends while another still waits for its messages. */
		if (!t->killed)
			barrier(&c);
		close_all(&c);
	}
	exit(0);
}

/*
 * Returns the next process that ends, or 0 after the test's limit. Polls of 1 ms are counted, not the clock, so that a
 * test that is stopped as a whole still has its full time.
 */
static pid_t next_end(const struct test *t, int *polls, int *status)
{
	int limit = LIMIT_S * 1000 * patience() * (t->procs > 16 ? 4 : 1);
	pid_t pid;

	while (!(pid = waitpid(-1, status, WNOHANG))) {
		if (!t->unlimited && ++*polls > limit)
			break;
		usleep(1000);
	}
	return pid;
}

static int run(const struct test *t, const char *region)
{
	struct timespec a, b;
	pid_t pids[MAX_PROCS];
	int i, status, bad = 0, killed = 0, polls = 0, left = t->procs;

	test_name = t->name;
	memset(common, 0, sizeof(*common));
	unlink(region);
	fflush(NULL);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < t->procs; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			perror("fork");
			return 1;
		}
		if (!pids[i])
			child(t, i, region);
	}
	while (left) {
		pid_t pid = next_end(t, &polls, &status);

		if (pid < 0)
			break;
		left -= pid != 0;
		if (pid && WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		if (pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && killed < t->killed) {
			killed++;
			continue;
		}
		if (!pid)
			fprintf(stderr, "test %s: it hangs\n", t->name);
		else if (!bad && WIFSIGNALED(status))
			fprintf(stderr, "test %s: a process ended by signal %d (%s)\n", t->name, WTERMSIG(status),
				strsignal(WTERMSIG(status)));
		/* A process that fails leaves the others waiting: end them. */
		bad = 1;
		polls = 0;
		for (i = 0; i < t->procs; i++)
			kill(pids[i], SIGKILL);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (!access(region, F_OK) && !t->killed) {
		fprintf(stderr, "test %s: %s was left behind\n", t->name, region);
		bad = 1;
	}
	unlink(region);
	for (i = 0; t->per_host && i < t->procs; i += t->per_host)
		unlink(host_region(region, i / t->per_host));
	printf("%-24s %s  %.2f s\n", t->name, bad ? "FAILED" : "ok",
	       (double) (b.tv_sec - a.tv_sec) + (double) (b.tv_nsec - a.tv_nsec) / 1e9);
	return bad;
}

/* Returns true for a name in FABRIC_EXCEPT, which spaces separate. */
static bool excepted(const char *name)
{
	const char *list = getenv("FABRIC_EXCEPT"), *at = list;
	size_t len = strlen(name);

	while (at && (at = strstr(at, name))) {
		if ((at == list || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
		at += len;
	}
	return false;
}

int main(int argc, char **argv)
{
	const struct test *t;
	static char region[64], env[128]; /* env outlives main */
	int bad = 0, ran = 0;
	size_t i;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (common == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	snprintf(region, sizeof(region), "/dev/shm/nearmetal-test-%d", (int) getpid());
	snprintf(env, sizeof(env), "FI_IVSHMEM_REGION=%s", region);
	/* FI_IVSHMEM_REGION=none: every test that supports it runs only over the core provider. */
	if (!getenv("FI_IVSHMEM_REGION") || strcmp(getenv("FI_IVSHMEM_REGION"), "none"))
		putenv(env);
	setenv("FI_IVSHMEM_REGION_SIZE", "268435456", 0);
	setenv("FI_IVSHMEM_CORE", "none", 0);
	setenv("FI_IVSHMEM_TEST", "1", 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; test_lists[i]; i++)
		for (t = test_lists[i]; t->name; t++) {
			if ((argc > 1 && !strstr(t->name, argv[1])) || excepted(t->name))
				continue;
			bad |= run(t, region);
			ran++;
		}
	if (!ran) {
		fprintf(stderr, "there is no test named like %s\n", argc > 1 ? argv[1] : "");
		return 1;
	}
	return bad;
}
