/*
 * Fuzzes two ranks in two processes, with a third process that plays another VM. The input defines what the ranks send
 * and receive, up to sizes that both copy, and which words the third writes repeatedly in the meantime: the word of a
 * message that both copy, old lines of a ring, slots, tables. No process may crash or hang, and nothing around a
 * receive's buffer, or in withdrawn memory, may change.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ofi/open.h"
#include "../proto/proto.h"

#define INPUT_MAX    600
#define REGION_BYTES (4 << 20)
#define LARGEST	     (512 << 10)
#define GUARD	     (256 << 10)
#define PATIENCE_MS  20000 /* timeout for the other processes: a busy machine is slow */
#define MR_KEY	     1

struct fi_provider *fi_prov_ini(void);

#define MUST(x) \
	do { \
		if (x) { \
			fprintf(stderr, "%s failed\n", #x); \
			abort(); \
		} \
	} while (0)

/* Memory that the processes share in addition to the region. */
static struct shared {
	uint32_t go; /* number of the input */
	uint32_t named[2], done[2], spoils, spoiled;
	size_t size;
	uint8_t data[INPUT_MAX];
	uint8_t name[2][64];
} *s;

static struct {
	struct fi_provider *prov;
	struct fi_info *info;
	char path[64];
	pid_t child[2];
	uint8_t out[LARGEST + 2 * GUARD];
	uint8_t in[GUARD + LARGEST + GUARD];
	uint8_t withdrawn[4096]; /* registered for a moment at each input's start */
} f;

static void ended(int i)
{
	int status;

	if (f.child[i] && waitpid(f.child[i], &status, WNOHANG) == f.child[i]) {
		fprintf(stderr, "process %d ended with status %#x\n", i + 1, (unsigned int) status);
		abort();
	}
}

/* Waits until *word is value, at most PATIENCE_MS. Only the first process watches the others. */
static bool wait_until(const uint32_t *word, uint32_t value, struct fid_cq *cq)
{
	uint64_t end = ivs_now_ms() + PATIENCE_MS;
	struct fi_cq_tagged_entry e;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
		if (cq)
			fi_cq_read(cq, &e, 0);
		sched_yield();
		ended(0);
		ended(1);
		if (ivs_now_ms() > end) {
			fprintf(stderr, "another process hangs\n");
			abort();
		}
	}
	return true;
}

static void read_queue(struct fid_cq *cq, int times)
{
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct fi_cq_tagged_entry e;

	while (times--)
		if (fi_cq_read(cq, &e, 1) == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			fi_cq_readerr(cq, &err.e, 0);
		}
}

static void untouched(void)
{
	size_t i;

	for (i = 0; i < GUARD; i++)
		MUST(f.in[i] != 0xee || f.in[GUARD + LARGEST + i] != 0xee);
	for (i = 0; i < sizeof(f.withdrawn); i++)
		MUST(f.withdrawn[i] != 0xdd);
}

/* Runs one rank's part of an input: every second byte. */
static void rank(int me, uint32_t round)
{
	static const size_t lens[] = { 8, 100, 328, 9000, 65536, 131072, 300001, LARGEST };
	struct fi_cq_attr cqa = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
	struct fi_av_attr ava = { .type = FI_AV_TABLE };
	uint64_t add = 5, result = 0;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	size_t len = 64, i;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t to;

	memset(f.in, 0xee, sizeof(f.in));
	memset(f.withdrawn, 0xdd, sizeof(f.withdrawn));
	MUST(f.prov->fabric(f.info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, f.info, &domain, NULL));
	MUST(fi_av_open(domain, &ava, &av, NULL));
	MUST(fi_cq_open(domain, &cqa, &cq, NULL));
	MUST(fi_endpoint(domain, f.info, &ep, NULL));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_enable(ep));
	MUST(fi_getname(&ep->fid, s->name[me], &len));
	__atomic_store_n(&s->named[me], round, __ATOMIC_RELEASE);
	wait_until(&s->named[!me], round, cq);
	wait_until(&s->spoils, round, cq);
	MUST(fi_av_insert(av, s->name[!me], 1, &to, 0, NULL) != 1);
	/* Withdrawn at once: an entry of the table is left, which can be put back. */
	MUST(fi_mr_reg(domain, f.withdrawn, sizeof(f.withdrawn), FI_REMOTE_WRITE, 0, MR_KEY, 0, &mr, NULL));
	fi_close(&mr->fid);
	MUST(fi_mr_reg(domain, f.in + GUARD, LARGEST, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, MR_KEY, 0, &mr, NULL));
	for (i = (size_t) me; i < s->size; i += 2) {
		uint8_t op = s->data[i];
		size_t n = lens[op >> 4 & 7];

		switch (op & 15) {
		case 0:
		case 1:
		case 2: fi_tsend(ep, f.out + GUARD, n, NULL, to, 1, NULL); break;
		case 3:
		case 4:
		case 5: fi_trecv(ep, f.in + GUARD, op & 128 ? LARGEST : n, NULL, FI_ADDR_UNSPEC, 1, 0, NULL); break;
		case 6: fi_write(ep, f.out + GUARD, n, NULL, to, 0, MR_KEY, NULL); break;
		case 7: fi_read(ep, f.in + GUARD, n, NULL, to, 0, MR_KEY, NULL); break;
		case 8:
			fi_fetch_atomic(ep, &add, 1, NULL, &result, NULL, to, 8, MR_KEY, FI_UINT64, FI_SUM, NULL);
			break;
		case 9: fi_cancel(&ep->fid, NULL); break;
		default: read_queue(cq, 50);
		}
	}
	for (i = 0; i < 20; i++) {
		read_queue(cq, 50);
		sched_yield();
	}
	__atomic_store_n(&s->done[me], round, __ATOMIC_RELEASE);
	wait_until(&s->done[!me], round, cq);
	fi_close(&ep->fid);
	fi_close(&cq->fid);
	fi_close(&mr->fid);
	fi_close(&av->fid);
	fi_close(&domain->fid);
	fi_close(&fabric->fid);
	untouched();
}

/* Writes one word as determined by the bytes at *at. keep: earlier contents of a line. */
static void spoil(uint8_t *layout, const struct nm_layout_geometry *g, const uint8_t *at, uint64_t *keep)
{
	uint64_t where = (uint64_t) at[1] << 8 | at[2], value = (uint64_t) at[3] << (at[4] & 63), *word;
	struct nm_conn *conn = (struct nm_conn *) (void *) (layout + g->conn_table);
	struct nm_ring_ctl *ctl;
	struct nm_slot *slots = (struct nm_slot *) (void *) (layout + g->slot_table);
	uint32_t to = at[1] % 2, from = !to, c;

	c = __atomic_load_n(&conn[to * g->slots + from].ring, __ATOMIC_RELAXED);
	if (!c || (uint64_t) c * NM_LAYOUT_LINE + (32 << 10) > g->area_bytes)
		c = (uint32_t) (g->heap / NM_LAYOUT_LINE) + 1;
	ctl = (struct nm_ring_ctl *) (void *) (layout + g->areas + from * g->area_bytes +
					       (uint64_t) (c - 1) * NM_LAYOUT_LINE);
	switch (at[0] % 8) {
	case 0:
	case 1:
		/* The ring's control lines. */
		word = (uint64_t *) (void *) ctl + at[2] % 16;
		break;
	case 2:
		/* An earlier line, now and then with the lap of another round. */
		word = (uint64_t *) (void *) ((uint8_t *) ctl + NM_LAYOUT_RING_CTL) + at[2] % 64 * 8;
		for (int i = 0; i < 8; i++)
			if (at[3] & 1)
				keep[i] = __atomic_load_n(&word[i], __ATOMIC_RELAXED);
			else
				__atomic_store_n(&word[i], i || !(at[3] & 2) ? keep[i] : keep[i] + 1, __ATOMIC_RELAXED);
		return;
	case 3: word = (uint64_t *) (void *) &slots[at[1] % 2] + at[2] % 6; break;
	case 4:
		word = (uint64_t *) (void *) (layout + g->mr_table) + where % (8 * (NM_LAYOUT_MR_COUNT + 1) * 2);
		value = at[3] & 1 ? value : 1; /* 1: makes an entry valid */
		break;
	case 5: word = &ctl->tail; break;
	default: word = (uint64_t *) (void *) ((uint8_t *) ctl + where % 8192 / 8 * 8);
	}
	if (at[0] & 64)
		value ^= __atomic_load_n(word, __ATOMIC_RELAXED);
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Plays the other VM's part of an input, until the ranks are done. */
static void spoiler(uint32_t round)
{
	uint64_t keep[8] = { 0 }, end = ivs_now_ms() + PATIENCE_MS;
	struct nm_layout_geometry g;
	struct nm_region_header h;
	struct stat st;
	uint8_t *map;
	int fd;

	wait_until(&s->named[0], round, NULL);
	fd = open(f.path, O_RDWR | O_CLOEXEC);
	MUST(fd < 0 || fstat(fd, &st));
	map = mmap(NULL, (size_t) st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	MUST(map == MAP_FAILED || nm_region_read(map, (uint64_t) st.st_size, &h));
	MUST(nm_layout_geometry(((struct nm_layout_head *) (void *) (map + h.layout_offset))->geometry, h.layout_bytes,
				&g));
	__atomic_store_n(&s->spoils, round, __ATOMIC_RELEASE);
	while ((__atomic_load_n(&s->done[0], __ATOMIC_ACQUIRE) != round ||
		__atomic_load_n(&s->done[1], __ATOMIC_ACQUIRE) != round) &&
	       ivs_now_ms() < end)
		for (size_t i = 0; i + 5 <= s->size; i += 5)
			spoil(map + h.layout_offset, &g, s->data + i, keep);
	munmap(map, (size_t) st.st_size);
	__atomic_store_n(&s->spoiled, round, __ATOMIC_RELEASE);
}

static void child(int which)
{
	uint32_t round = 0, go;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGALRM, SIG_IGN);
	for (;;) {
		while ((go = __atomic_load_n(&s->go, __ATOMIC_ACQUIRE)) == round)
			usleep(50);
		round = go;
		if (which)
			spoiler(round);
		else
			rank(1, round);
	}
}

static void start(void)
{
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(s == MAP_FAILED);
	snprintf(f.path, sizeof(f.path), "/dev/shm/nearmetal-fuzz-%d", (int) getpid());
	setenv("FI_IVSHMEM_REGION", f.path, 1);
	setenv("FI_IVSHMEM_CORE", "none", 1);
	setenv("FI_IVSHMEM_RANKS", "4", 1);
	setenv("FI_LOG_LEVEL", "error", 0);
	f.prov = fi_prov_ini();
	MUST(!f.prov);
	ivs_param.region_size = REGION_BYTES;
	ivs_param.region = f.path;
	ivs_param.core = (char *) (uintptr_t) "none";
	ivs_param.ranks = 4;
	ivs_param.timeout = 5000;
	MUST(f.prov->getinfo(FI_VERSION(1, 9), NULL, NULL, 0, NULL, &f.info));
	memset(f.out, 1, sizeof(f.out));
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		MUST(pid < 0);
		if (!pid) {
			f.child[0] = f.child[1] = 0;
			child(i);
		}
		f.child[i] = pid;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t round;

	if (!f.prov)
		start();
	s->size = size < INPUT_MAX ? size : INPUT_MAX;
	memcpy(s->data, data, s->size);
	round = s->go + 1;
	__atomic_store_n(&s->go, round, __ATOMIC_RELEASE);
	rank(0, round);
	wait_until(&s->spoiled, round, NULL);
	return 0;
}
