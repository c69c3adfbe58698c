/* A neighbour is killed, and another process gets its pid: that process's memory is neither written nor read. */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lists.h"

enum { LEN = 65536, KEY = 7, OURS = 1, ANOTHERS = 0x77 };

struct told {
	pid_t pid;
	uint32_t step, over, spoilt;
};

static uint8_t memory[LEN]; /* at the same address in every process */

static bool all(const uint8_t *p, int value)
{
	for (size_t i = 0; i < LEN; i++)
		if (((const volatile uint8_t *) p)[i] != value)
			return false;
	return true;
}

/* Runs the process that gets the pid: it watches its memory until the test is over. */
static _Noreturn void another(struct told *s)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE))
		syscall(SYS_sched_yield);
	if (!all(memory, ANOTHERS))
		__atomic_store_n(&s->spoilt, 1, __ATOMIC_RELEASE);
	_exit(0);
}

/*
 * Starts a process with the pid of one that ends, as soon as the pid is free. Its memory has other bytes than the first
 * one's. Returns 0 if that is not permitted.
 */
static pid_t reuse(struct told *s)
{
	pid_t pid = s->pid;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t) &pid, .set_tid_size = 1 };
	long ret;

	memset(memory, ANOTHERS, sizeof(memory));
	while ((ret = syscall(SYS_clone3, &args, sizeof(args))) < 0 && errno == EEXIST)
		usleep(1000);
	if (!ret)
		another(s);
	if (ret < 0 && errno != EPERM && errno != ENOSYS)
		fail(__FILE__, __LINE__, "clone3", errno);
	return ret < 0 ? 0 : pid;
}

/* Ends the process with the pid, and checks that its memory is unchanged. */
static void check_another(struct told *s, pid_t pid)
{
	int status;

	__atomic_store_n(&s->over, 1, __ATOMIC_RELEASE);
	if (!pid) {
		fprintf(stderr, "skipped: a pid can be chosen by root only\n");
		return;
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(!s->spoilt);
}

static void spin_step(struct ctx *c, struct told *s, uint32_t step)
{
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < step)
		progress(c);
}

/* Rank 0 writes twice to memory that rank 1 has registered, the second time after rank 1's death. */
static void reused_write(struct ctx *c)
{
	static uint8_t out[LEN];
	struct told *s = shared();
	struct fid_mr *mr;
	pid_t pid;
	ssize_t n;

	if (c->rank) {
		OK(fi_mr_reg(c->domain, memory, LEN, FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
		s->pid = getpid();
		barrier(c);
		spin_step(c, s, 1);
		CHECK(all(memory, OURS));
		raise(SIGKILL);
	}
	memset(out, OURS, sizeof(out));
	barrier(c);
	RETRY(c, fi_write(c->ep, out, LEN, NULL, c->peer[1], 0, KEY, NULL));
	wait_comp(c, c->txcq);
	__atomic_store_n(&s->step, 1, __ATOMIC_RELEASE);
	pid = reuse(s);
	while ((n = fi_write(c->ep, out, LEN, NULL, c->peer[1], 0, KEY, NULL)) == -FI_EAGAIN)
		progress(c);
	CHECK(n == -FI_EIO || (!n && wait_err(c, c->txcq).err == FI_EIO));
	check_another(s, pid);
}

/* Rank 0 receives two messages that rank 1 has shown it, the second one after rank 1's death. */
static void reused_read(struct ctx *c)
{
	static uint8_t in[LEN];
	struct told *s = shared();
	pid_t pid;

	if (c->rank) {
		memset(memory, OURS, LEN);
		s->pid = getpid();
		RETRY(c, fi_tsend(c->ep, memory, LEN, NULL, c->peer[0], 1, NULL));
		wait_comp(c, c->txcq);
		spin_step(c, s, 1);
		RETRY(c, fi_tsend(c->ep, memory, LEN, NULL, c->peer[0], 2, NULL));
		__atomic_store_n(&s->step, 2, __ATOMIC_RELEASE);
		raise(SIGKILL);
	}
	OK(fi_trecv(c->ep, in, LEN, NULL, c->peer[1], 1, 0, NULL));
	wait_comp(c, c->rxcq);
	CHECK(all(in, OURS));
	__atomic_store_n(&s->step, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&s->step, __ATOMIC_ACQUIRE) < 2)
		sched_yield();
	pid = reuse(s);
	OK(fi_trecv(c->ep, in, LEN, NULL, c->peer[1], 2, 0, NULL));
	CHECK(wait_err(c, c->rxcq).err == FI_EIO);
	check_another(s, pid);
}

const struct test test_reused[] = {
	/* Any size is read directly, without measuring. */
	{ "reused_write", 2, reused_write, .killed = 1, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
	{ "reused_read", 2, reused_read, .killed = 1, .env = { "FI_IVSHMEM_CMA_MIN=8192" } },
	{ 0 }
};
