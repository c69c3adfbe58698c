/*
 * UCC's collectives over the transport, with 4 ranks: each operation on several lengths, all data compared. The headers and
 * libraries are those of scripts/ucx-ucc.sh.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ucc/api/ucc.h>

#include "harness.h"

#define RANKS	  4
#define TOLD_MAX  (256 << 10) /* bytes of a rank's in one exchange: addresses */
#define WORDS_MAX (1 << 17)

/* What the ranks tell each other before UCC can. */
static uint8_t (*told)[TOLD_MAX];
static ucc_context_h context;
static ucc_team_h team;

static ucc_status_t tell_all(void *src, void *dst, size_t size, void *info, void **request)
{
	int i;

	(void) info;
	EXPECT(size <= TOLD_MAX);
	memcpy(told[rank], src, size);
	barrier(NULL);
	for (i = 0; i < ranks; i++)
		memcpy((uint8_t *) dst + (size_t) i * size, told[i], size);
	barrier(NULL);
	*request = dst;
	return UCC_OK;
}

static ucc_status_t told_all(void *request)
{
	(void) request;
	return UCC_OK;
}

static void start(void)
{
	ucc_lib_params_t lib_params = { .mask = UCC_LIB_PARAM_FIELD_THREAD_MODE, .thread_mode = UCC_THREAD_SINGLE };
	ucc_oob_coll_t oob = { .allgather = tell_all,
			       .req_test = told_all,
			       .req_free = told_all,
			       .n_oob_eps = (uint32_t) ranks,
			       .oob_ep = (uint32_t) rank };
	ucc_context_params_t context_params = { .mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = oob };
	ucc_team_params_t team_params = {
		.mask = UCC_TEAM_PARAM_FIELD_OOB | UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE,
		.oob = oob,
		.ep = (uint64_t) rank,
		.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
	};
	ucc_lib_config_h lib_config;
	ucc_context_config_h context_config;
	ucc_status_t status;
	ucc_lib_h lib;

	EXPECT(ucc_lib_config_read(NULL, NULL, &lib_config) == UCC_OK);
	EXPECT(ucc_init(&lib_params, lib_config, &lib) == UCC_OK);
	ucc_lib_config_release(lib_config);
	EXPECT(ucc_context_config_read(lib, NULL, &context_config) == UCC_OK);
	EXPECT(ucc_context_create(lib, &context_params, context_config, &context) == UCC_OK);
	ucc_context_config_release(context_config);
	EXPECT(ucc_team_create_post(&context, 1, &team_params, &team) == UCC_OK);
	while ((status = ucc_team_create_test(team)) == UCC_INPROGRESS)
		ucc_context_progress(context);
	EXPECT(status == UCC_OK);
}

/* One collective, of words of 64 bits. */
static void collective(ucc_coll_type_t type, const void *src, size_t src_words, void *dst, size_t dst_words,
		       uint64_t root)
{
	ucc_coll_args_t args = {
		.coll_type = type,
		.root = root,
		.op = UCC_OP_SUM,
		.src.info = { (void *) (uintptr_t) src, src_words, UCC_DT_UINT64, UCC_MEMORY_TYPE_HOST },
		.dst.info = { dst, dst_words, UCC_DT_UINT64, UCC_MEMORY_TYPE_HOST },
	};
	ucc_coll_req_h request;
	ucc_status_t status;

	EXPECT(ucc_collective_init(&args, &request, team) == UCC_OK);
	EXPECT(ucc_collective_post(request) == UCC_OK);
	while ((status = ucc_collective_test(request)) == UCC_INPROGRESS)
		ucc_context_progress(context);
	EXPECT(status == UCC_OK);
	EXPECT(ucc_collective_finalize(request) == UCC_OK);
}

/* Word number at of what a rank contributes in turn n. */
static uint64_t word(int of, size_t at, uint32_t n)
{
	return (uint64_t) (of + 1) * 1000003 + at * 7 + n;
}

static void collectives(void)
{
	static const size_t lengths[] = { 1, 5, 128, 1000, 8192, WORDS_MAX };
	uint64_t *in = malloc(RANKS * WORDS_MAX * sizeof(*in)), *out = malloc(RANKS * WORDS_MAX * sizeof(*out));
	uint32_t n, turn;
	size_t len, i;
	int r;

	start();
	for (n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++)
		for (turn = 0; turn < 5; turn++) {
			uint64_t root = turn % RANKS;

			len = lengths[n];
			for (i = 0; i < RANKS * len; i++)
				in[i] = word(rank, i, turn);
			memset(out, 0, RANKS * len * sizeof(*out));
			collective(UCC_COLL_TYPE_ALLREDUCE, in, len, out, len, 0);
			for (i = 0; i < len; i++)
				EXPECT(out[i] ==
				       word(0, i, turn) + word(1, i, turn) + word(2, i, turn) + word(3, i, turn));
			memset(out, 0, RANKS * len * sizeof(*out));
			collective(UCC_COLL_TYPE_REDUCE, in, len, out, len, root);
			for (i = 0; i < len && (uint64_t) rank == root; i++)
				EXPECT(out[i] ==
				       word(0, i, turn) + word(1, i, turn) + word(2, i, turn) + word(3, i, turn));
			collective(UCC_COLL_TYPE_ALLGATHER, in, len, out, RANKS * len, 0);
			for (i = 0; i < RANKS * len; i++)
				EXPECT(out[i] == word((int) (i / len), i % len, turn));
			collective(UCC_COLL_TYPE_ALLTOALL, in, RANKS * len, out, RANKS * len, 0);
			for (r = 0; r < RANKS; r++)
				for (i = 0; i < len; i++)
					EXPECT(out[(size_t) r * len + i] == word(r, (size_t) rank * len + i, turn));
			memcpy(out, in, len * sizeof(*out));
			collective(UCC_COLL_TYPE_BCAST, out, len, NULL, 0, root);
			for (i = 0; i < len; i++)
				EXPECT(out[i] == word((int) root, i, turn));
			collective(UCC_COLL_TYPE_BARRIER, NULL, 0, NULL, 0, 0);
		}
	barrier(NULL);
	_exit(0);
}

int main(void)
{
	setenv("NEARMETAL_UCX_NEAR", "1", 1);
	told = mmap(NULL, RANKS * sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(told != MAP_FAILED);
	run("allreduce, reduce, allgather, alltoall, bcast and barrier of 8 B to 1 MiB", RANKS, 256, collectives,
	    false);
	return 0;
}
