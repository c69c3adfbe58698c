/*
 * libFuzzer target: a mux whose other side sends arbitrary bytes after its HELLO. Its streams are echoed, so that
 * received data is also sent.
 */
#include "../log.h"
#include "../mux.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_data(struct stream *s, int lane, const uint8_t *p, size_t n)
{
	size_t may = stream_may_send(s, lane, n);

	if (may)
		stream_data(s, lane, p, may);
	stream_refill(s, lane, 0);
}

static void on_credit(struct stream *s, int lane, uint32_t n)
{
	(void) n;
	if (s->credit[lane] > lane_max(lane))
		abort();
}

static void on_eof(struct stream *s, int lane)
{
	stream_eof(s, lane);
}

static void on_end(struct stream *s, bool reset, const char *text)
{
	(void) s;
	if (reset && strlen(text) > TEXT_MAX)
		abort();
}

static const struct stream_ops ops = { on_data, on_credit, on_eof, on_end };

static void on_open(struct mux *m, uint32_t id, const char *kind, const struct fields *h)
{
	size_t at = 0;

	while (fields_each(h, &at))
		;
	if (*kind == 'n')
		mux_refuse(m, id, "no");
	else
		mux_take(m, id, &ops, NULL);
}

static bool over;

static void mux_over(struct mux *m, const char *why)
{
	(void) m;
	(void) why;
	over = true;
}

/* Does the work of one round of the loop. */
static void round_of(struct mux *m)
{
	if (!over)
		m->ev.ready(&m->ev, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text[] = "protocol=1";
	struct frame f = { .type = T_HELLO, .len = sizeof(text) };
	uint8_t hello[FRAME_HEADER];
	struct mux *m = must_alloc(sizeof(*m));
	static bool ready;
	int fd[2];

	if (!ready)
		loop_init();
	ready = true;
	over = false;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		abort();
	m->on_open = on_open;
	m->on_end = mux_over;
	m->remote_max = 8;
	mux_start(m, fd[0]);
	frame_put(hello, &f);
	if (size > 65536 || write(fd[1], hello, sizeof(hello)) < 0 || write(fd[1], text, sizeof(text)) < 0 ||
	    (size && write(fd[1], data, size) < 0))
		size = 0;
	round_of(m);
	close(fd[1]);
	round_of(m);
	if (!over)
		mux_fail(m, "the end");
	loop_forget();
	free(m);
	return 0;
}
