/*
 * Fuzzes two endpoints of one process over a region that is corrupted in between: the input defines what they send and
 * receive, and which words of the region change. Built with the provider's own sources, so that libFuzzer sees which of
 * their branches it reaches. Nothing may crash, hang, or be read outside of its bounds.
 */
#include <stdio.h>
#include <unistd.h>

#include "../ofi/open.h"
#include "../proto/proto.h"

#define REGION_BYTES (2 << 20)
#define BUFFER_BYTES 30000

struct fi_provider *fi_prov_ini(void);

struct input {
	const uint8_t *at;
	size_t left;
};

static uint64_t take(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	if (bytes > in->left)
		bytes = in->left;
	memcpy(&value, in->at, bytes);
	in->at += bytes;
	in->left -= bytes;
	return value;
}

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
	uint8_t buf[2][BUFFER_BYTES];
};

static struct {
	struct fi_provider *prov;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_mr *mr;
	struct side side[2];
	fi_addr_t addr[2];
	char path[64];
} f;

#define MUST(x) \
	do { \
		if (x) { \
			fprintf(stderr, "%s failed\n", #x); \
			abort(); \
		} \
	} while (0)

static void open_side(struct side *s, fi_addr_t *addr)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD };
	unsigned char name[64];
	size_t len = sizeof(name);

	MUST(fi_cq_open(f.domain, &attr, &s->cq, NULL));
	MUST(fi_endpoint(f.domain, f.info, &s->ep, NULL));
	MUST(fi_ep_bind(s->ep, &f.av->fid, 0));
	MUST(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_enable(s->ep));
	MUST(fi_getname(&s->ep->fid, name, &len));
	MUST(fi_av_insert(f.av, name, 1, addr, 0, NULL) != 1);
}

static void open_all(void)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	MUST(f.prov->fabric(f.info->fabric_attr, &f.fabric, NULL));
	MUST(fi_domain(f.fabric, f.info, &f.domain, NULL));
	MUST(fi_av_open(f.domain, &av, &f.av, NULL));
	open_side(&f.side[0], &f.addr[0]);
	open_side(&f.side[1], &f.addr[1]);
	MUST(fi_mr_reg(f.domain, f.side[1].buf[1], BUFFER_BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &f.mr,
		       NULL));
}

static void close_all(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		fi_close(&f.side[i].ep->fid);
		fi_close(&f.side[i].cq->fid);
	}
	fi_close(&f.mr->fid);
	fi_close(&f.av->fid);
	fi_close(&f.domain->fid);
	fi_close(&f.fabric->fid);
}

static void read_queue(struct side *s)
{
	union {
		struct fi_cq_err_entry e;
		char room[256];
	} err;
	struct fi_cq_tagged_entry e;
	int i;

	for (i = 0; i < 20; i++)
		if (fi_cq_read(s->cq, &e, 1) == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			fi_cq_readerr(s->cq, &err.e, 0);
		}
}

/* Changes a word of the tables, the rings or the bounce buffers of the first slots. */
static void spoil(struct input *in, const struct ivs_region *r)
{
	uint64_t what = take(in, 1), at = take(in, 2), value, *word;
	const struct nm_layout_geometry *g = &r->geo;

	switch (what & 7) {
	case 0: at = at % (g->slots * sizeof(struct nm_slot)) + g->slot_table; break;
	case 1: at = at % (g->slots * g->slots * sizeof(struct nm_conn)) + g->conn_table; break;
	case 2: at = at % (2 * (NM_LAYOUT_MR_COUNT + 1) * sizeof(struct nm_mr)) + g->mr_table; break;
	case 3: at = at % (2 * IVS_BOUNCE) + g->areas; break;
	default:
		/* The first lines of the first ring of either endpoint. */
		at = at % 4096 + g->areas + (what >> 3 & 1) * g->area_bytes + g->heap;
		break;
	}
	word = (uint64_t *) (void *) (r->layout + (at & ~7ULL));
	value = take(in, what & 16 ? 8 : 2);
	if (what & 32)
		*word ^= value << (what >> 6 ? 32 : 0);
	else
		*word = value;
}

static void one(struct input *in)
{
	struct ivs_region *r = ivs_entry(f.domain, struct ivs_domain, fid)->region;
	static const size_t lens[] = { 0, 8, 48, 100, 328, 4000, 9000, 20000 };
	uint8_t op = (uint8_t) take(in, 1);
	int side = op >> 7;
	struct side *s = &f.side[side];
	fi_addr_t to = f.addr[!side];
	size_t len = lens[op >> 4 & 7];
	static uint64_t x = 5, y = 7, z; /* used until the operation ends */

	switch (op & 15) {
	case 0: fi_tsend(s->ep, s->buf[0], len, NULL, to, 1, NULL); break;
	case 1: fi_trecv(s->ep, s->buf[1], BUFFER_BYTES, NULL, FI_ADDR_UNSPEC, 1, 0, NULL); break;
	case 2: fi_send(s->ep, s->buf[0], len, NULL, to, NULL); break;
	case 3: fi_recv(s->ep, s->buf[1], len, NULL, to, NULL); break;
	case 4: fi_write(s->ep, s->buf[0], len, NULL, to, 0, 1, NULL); break;
	case 5: fi_read(s->ep, s->buf[0], len, NULL, to, 0, 1, NULL); break;
	case 6: fi_atomic(s->ep, &x, 1, NULL, to, 8, 1, FI_UINT64, FI_SUM, NULL); break;
	case 7:
		fi_compare_atomic(s->ep, &x, 1, NULL, &y, NULL, &z, NULL, to, 8, 1, FI_UINT64, FI_CSWAP, NULL);
		read_queue(&f.side[!side]);
		read_queue(s);
		break;
	case 8:
	case 9: read_queue(s); break;
	case 10:
		if (len > 100) {
			fi_cancel(&s->ep->fid, NULL);
		} else {
			/* Prepare to sleep, and be woken by what the other side sends next. */
			struct fid *fid = &s->cq->fid;

			fi_trywait(f.fabric, &fid, 1);
		}
		break;
	default: spoil(in, r); break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	int i;

	if (!f.prov) {
		snprintf(f.path, sizeof(f.path), "/dev/shm/nearmetal-fuzz-%d", (int) getpid());
		setenv("FI_IVSHMEM_REGION", f.path, 1);
		setenv("FI_IVSHMEM_CORE", "none", 1);
		setenv("FI_IVSHMEM_RANKS", "4", 1);
		ivs_param.region_size = REGION_BYTES;
		f.prov = fi_prov_ini();
		MUST(!f.prov);
		ivs_param.region = f.path;
		ivs_param.core = (char *) (uintptr_t) "none";
		ivs_param.ranks = 4;
		MUST(f.prov->getinfo(FI_VERSION(1, 9), NULL, NULL, 0, NULL, &f.info));
	}
	/* Now and then an invented address. */
	open_all();
	if (size > 64 && data[0] == 0xff) {
		fi_addr_t a;
		char text[64];
		size_t len = sizeof(text);

		fi_av_straddr(f.av, data, text, &len);
		if (fi_av_insert(f.av, data, 1, &a, 0, NULL) == 1)
			fi_tsend(f.side[0].ep, f.side[0].buf[0], 8, NULL, a, 1, NULL);
	}
	while (in.left)
		one(&in);
	for (i = 0; i < 4; i++)
		read_queue(&f.side[i & 1]);
	close_all();
	return 0;
}
