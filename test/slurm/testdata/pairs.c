/*
 * pairs: every rank sends to every other messages of several sizes, to be received from whomever they
 * come, and looks at each byte. Says "rank R of N on HOST: right".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned char byte_of(int from, int to, size_t i)
{
	return (unsigned char) (from * 31 + to * 7 + i * 13 + (i >> 8));
}

int main(int argc, char **argv)
{
	static const int sizes[] = { 1, 40, 300, 5000, 20000, 150000 };
	enum { MOST = 150000 };
	unsigned char *in = malloc(MOST), *out;
	MPI_Request *sent;
	char host[256];
	int rank, size, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	gethostname(host, sizeof(host));
	out = malloc((size_t) size * MOST);
	sent = malloc(sizeof(*sent) * (size_t) size);
	if (!in || !out || !sent)
		MPI_Abort(MPI_COMM_WORLD, 3);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		for (int to = 0; to < size; to++) {
			unsigned char *m = out + (size_t) to * MOST;

			for (int i = 0; i < sizes[s]; i++)
				m[i] = byte_of(rank, to, (size_t) i);
			MPI_Isend(m, to == rank ? 0 : sizes[s], MPI_BYTE, to, (int) s, MPI_COMM_WORLD, &sent[to]);
		}
		for (int n = 0; n < size; n++) {
			MPI_Status st;
			int got;

			MPI_Recv(in, MOST, MPI_BYTE, MPI_ANY_SOURCE, (int) s, MPI_COMM_WORLD, &st);
			MPI_Get_count(&st, MPI_BYTE, &got);
			wrong += got != (st.MPI_SOURCE == rank ? 0 : sizes[s]);
			for (int i = 0; i < got; i++)
				wrong += in[i] != byte_of(st.MPI_SOURCE, rank, (size_t) i);
		}
		MPI_Waitall(size, sent, MPI_STATUSES_IGNORE);
	}
	printf("rank %d of %d on %s: %s\n", rank, size, host, wrong ? "wrong" : "right");
	fflush(stdout);
	MPI_Finalize();
	return wrong != 0;
}
