/*
 * Runs tests in processes that communicate over the provider ivshmem, through libfabric's public interface only. Each
 * process has an endpoint, and the addresses of all processes.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nearmetal/layout.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define MAX_PROCS 64
#define LIMIT_S	  120 /* seconds after which a test counts as hanging, at normal speed */

/* A test's requests for its endpoints; the harness fills in the other fields. */
struct setup {
	uint64_t caps;		     /* 0: everything */
	enum fi_threading threading; /* 0: FI_THREAD_DOMAIN */
	enum fi_av_type av_type;     /* 0: table */
	enum fi_wait_obj wait_obj;
	uint64_t tx_op_flags;
	bool selective; /* FI_SELECTIVE_COMPLETION */
	bool counters;	/* bound for all four directions */
	size_t cq_size;
};

struct ctx {
	int rank, procs;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *txcq, *rxcq;
	struct fid_cntr *tx_cntr, *rx_cntr, *rd_cntr, *wr_cntr;
	struct fid_ep *ep;
	fi_addr_t peer[MAX_PROCS];
};

struct test {
	const char *name;
	int procs;
	void (*run)(struct ctx *c);
	struct setup setup;
	bool bare;	    /* no endpoint: the test opens what it needs */
	const char *env[4]; /* NAME=VALUE for its processes */
	int per_host;	    /* processes that share a region, as on one host; 0: all of them */
	int killed;	    /* number of processes that end by a signal */
	bool unlimited;	    /* the test detects hanging itself */
};

/* Ends the process with a message unless x holds. */
#define CHECK(x) \
	do { \
		if (!(x)) \
			fail(__FILE__, __LINE__, #x, 0); \
	} while (0)
/* Like CHECK(x == 0), with libfabric's text for x. */
#define OK(x) \
	do { \
		long long ok_ = (long long) (x); \
		if (ok_) \
			fail(__FILE__, __LINE__, #x, ok_); \
	} while (0)

_Noreturn void fail(const char *file, int line, const char *what, long long err);

/* Returns FABRIC_PATIENCE (1): the factor by which operations may be slower, or be repeated, under a tool. */
int patience(void);

/* Waits for all processes, and handles messages during that time. */
void barrier(struct ctx *c);
/* Returns memory that all processes of the test share. */
void *shared(void);
#define SHARED_BYTES (1 << 20)

/* Returns the next completion of a queue. Fails if there is none or it is an error. */
struct fi_cq_tagged_entry wait_comp(struct ctx *c, struct fid_cq *cq);
struct fi_cq_tagged_entry wait_comp_src(struct ctx *c, struct fid_cq *cq, fi_addr_t *src);
/* Returns the next error of a queue. Fails if the next completion is not an error. */
struct fi_cq_err_entry wait_err(struct ctx *c, struct fid_cq *cq);
/* Repeats x while it returns -FI_EAGAIN, and handles messages in between. */
#define RETRY(c, x) \
	do { \
		ssize_t r_; \
		while ((r_ = (x)) == -FI_EAGAIN) \
			progress(c); \
		if (r_) \
			fail(__FILE__, __LINE__, #x, r_); \
	} while (0)
void progress(struct ctx *c);

/* Maps the layout area of the test's file region, for the lifetime of the process, and returns its geometry. */
uint8_t *map_layout(struct nm_layout_geometry *geo);

/* Writes bytes that depend on their position and on seed. */
void fill(void *buf, size_t len, unsigned int seed);
bool filled(const void *buf, size_t len, unsigned int seed);

/* Open or close a process's objects, for tests of a list that do this themselves. */
struct fi_info *get_info(const struct setup *s);
void open_all(struct ctx *c, const struct setup *s);
void close_all(struct ctx *c);
/* Stores the addresses of all processes in c->peer. */
void exchange(struct ctx *c);

extern const struct test *const test_lists[];

#endif /* HARNESS_H */
