/*
 * Reads and writes the memory of another process of the same VM. The kernel finds the process by its pid, which another
 * process may get after it has ended. Therefore its ledger is asked whether it is alive (region/ledger.h): of the
 * kernel's means this is the only one without a system call, which costs a tenth of a read of 16 KiB.
 *
 * After a read the answer is certain: the process was still alive, so that the pid was its own all the time. Before a
 * write it is as certain as possible. The remaining risk is a process that ends between the answer and the system call,
 * while its pid is reused. The kernel assigns pids in a cycle, so that all others must have been assigned in between,
 * as if this rank were stopped at that point for long. /proc/PID/mem would leave no such risk, because it names the
 * memory itself, but it copies twice and has half the bandwidth.
 */
#include <sys/uio.h>

#include "proto/proto.h"
#include "region/ledger.h"

/* Removes the first bytes from count pieces. */
static void advance(struct iovec *iov, size_t count, size_t bytes)
{
	size_t i, n;

	for (i = 0; i < count && bytes; i++) {
		n = iov[i].iov_len < bytes ? iov[i].iov_len : bytes;
		iov[i].iov_base = (char *) iov[i].iov_base + n;
		iov[i].iov_len -= n;
		bytes -= n;
	}
}

/* Stops all later access to the peer's memory. Returns the negative error. */
static int unreachable(struct ivs_peer *peer, int err)
{
	IVS_INFO(FI_LOG_EP_DATA, "memory of process %d cannot be reached: %s\n", peer->proto.pid,
		 ivs_lib.strerror(err));
	peer->proto.pid = 0;
	return -err;
}

int ivs_cma(struct ivs_peer *peer, bool write, const struct iovec *local, size_t nlocal, const struct iovec *remote,
	    size_t nremote, size_t total)
{
	struct iovec l[IVS_PIECES_MAX], r[IVS_PIECES_MAX];
	size_t left = total;
	ssize_t n;

	if (!peer->proto.pid)
		return -FI_EPERM;
	if (nlocal > IVS_PIECES_MAX || nremote > IVS_PIECES_MAX)
		return -FI_EINVAL;
	/*
	 * Also for the memory of this process: its addresses came through the region, and the kernel refuses invalid
	 * ones.
	 */
	peer->proto.cma_copies++;
	if (!left)
		return 0;
	/* The kernel copies what fits both sides: limit it to total. */
	for (size_t i = 0, sum = 0; i < nlocal; i++) {
		l[i].iov_base = local[i].iov_base;
		l[i].iov_len = local[i].iov_len < total - sum ? local[i].iov_len : total - sum;
		sum += l[i].iov_len;
	}
	for (size_t i = 0; i < nremote; i++)
		r[i] = remote[i];
	for (;;) {
		if (write && !ivs_ledger_held(peer->alive.ledger))
			return unreachable(peer, ESRCH);
		n = write ? process_vm_writev(peer->proto.pid, l, nlocal, r, nremote, 0)
			  : process_vm_readv(peer->proto.pid, l, nlocal, r, nremote, 0);
		if (n <= 0 || (size_t) n > left)
			return unreachable(peer, n < 0 ? errno : EIO);
		if (!write && !ivs_ledger_held(peer->alive.ledger))
			return unreachable(peer, ESRCH);
		left -= (size_t) n;
		if (!left)
			return 0;
		advance(l, nlocal, (size_t) n);
		advance(r, nremote, (size_t) n);
	}
}
