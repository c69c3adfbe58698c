/*
 * mpi_bench [start|short]: latency, bandwidth, message rate and put latency between two ranks
 * of an MPI, on two cores. One line a figure: NAME BYTES VALUE (twoway.h); put: us until
 * an MPI_Put of 8 bytes to a window of MPI_Win_allocate is flushed.
 * With "start" it only begins and ends, with any number of ranks; with "short" it measures
 * messages of a cache line only.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meter.h"

static int rank;

static void tw_send(const void *buf, size_t len)
{
	MPI_Send(buf, (int) len, MPI_BYTE, !rank, 1, MPI_COMM_WORLD);
}

static void tw_recv(void *buf, size_t len)
{
	MPI_Recv(buf, (int) len, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static MPI_Request requests[METER_WINDOW];
static MPI_Status statuses[METER_WINDOW];

static void tw_send_window(const void *buf, size_t len, int count)
{
	for (int i = 0; i < count; i++)
		MPI_Isend(buf, (int) len, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitall(count, requests, statuses);
}

static void tw_recv_window(void *buf, size_t len, int count)
{
	for (int i = 0; i < count; i++)
		MPI_Irecv(buf, (int) len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitall(count, requests, statuses);
}

static void tw_meet(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

static long tw_agree(long value)
{
	MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	return value;
}

#include "twoway.h"

static double puts_us(MPI_Win win, const uint8_t *from, long count)
{
	double t = meter_now();

	for (long i = 0; i < count; i++) {
		MPI_Put(from, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
		MPI_Win_flush(1, win);
	}
	return (meter_now() - t) / (double) count;
}

static void put_latency(const uint8_t *from)
{
	double each[METER_SLICES];
	uint8_t *memory;
	MPI_Win win;

	MPI_Win_allocate(1 << 20, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		long count = meter_count(puts_us(win, from, 100), 100, 3000, 1);

		for (int s = 0; s < METER_SLICES; s++)
			each[s] = puts_us(win, from, count);
		meter_print("put", 8, meter_median(each, METER_SLICES));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
	uint8_t *out = aligned_alloc(4096, METER_LARGEST), *in = aligned_alloc(4096, METER_LARGEST);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc > 1 && !strcmp(argv[1], "start")) {
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Finalize();
		return 0;
	}
	if (!out || !in)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(out, 1, METER_LARGEST);
	memset(in, 2, METER_LARGEST);
	meter_pin(rank);
	meter_realtime();
	if (argc > 1 && !strcmp(argv[1], "short")) {
		tw_short(out, in);
		MPI_Finalize();
		return 0;
	}
	tw_all(out, in);
	fflush(stdout);
	put_latency(out);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
