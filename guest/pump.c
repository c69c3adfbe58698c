#include "pump.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { GENTLE = 4096 }; /* PIPE_BUF: a pipe that polls writable accepts this much at once */

static void source_end(struct source *p)
{
	event_close(&p->ev);
	if (p->s) {
		waiter_cancel(p->s->m, &p->room);
		stream_eof(p->s, p->lane);
	}
	p->ended(p);
}

static void source_ready(struct event *e, uint32_t events)
{
	struct source *p = (struct source *) e;
	struct mux *m = p->s->m;
	size_t most = stream_may_send(p->s, p->lane, FRAME_MAX - FRAME_HEADER);
	struct frame f = { .type = T_DATA, .lane = p->lane, .stream = p->s->id };
	uint8_t *to;
	ssize_t n;

	(void) events;
	if (!most || !mux_room(m, &p->room)) {
		event_watch(e, 0);
		return;
	}
	/* Reads to the frame's place in the queue, which saves a copy. */
	to = buf_reserve(&m->out, FRAME_HEADER + most);
	n = read(e->fd, to + FRAME_HEADER, most);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) { /* EIO: the last program on a terminal has exited */
		source_end(p);
		return;
	}
	f.len = n;
	frame_put(to, &f);
	buf_added(&m->out, FRAME_HEADER + n);
	p->s->credit[p->lane] -= n;
	task_queue(&m->flush);
}

void source_go(struct source *p)
{
	if (p->ev.fd >= 0 && p->s && stream_may_send(p->s, p->lane, 1) && mux_room(p->s->m, &p->room))
		event_watch(&p->ev, EPOLLIN);
}

static void source_room(struct waiter *w)
{
	source_go((struct source *) ((char *) w - offsetof(struct source, room)));
}

void source_start(struct source *p, int fd, struct stream *s, int lane, void (*ended)(struct source *), void *owner)
{
	event_init(&p->ev, fd, source_ready);
	p->room = (struct waiter) { .go = source_room };
	p->s = s;
	p->lane = lane;
	p->ended = ended;
	p->owner = owner;
	source_go(p);
}

void source_stop(struct source *p)
{
	if (p->s)
		waiter_cancel(p->s->m, &p->room);
	event_close(&p->ev);
	p->s = NULL;
}

static void sink_close(struct sink *p)
{
	event_close(&p->ev);
	buf_free(&p->q);
	if (p->ended)
		p->ended(p);
}

/* Writes as much as possible; false if the descriptor was closed. */
static bool sink_flush(struct sink *p)
{
	while (p->q.len) {
		size_t n = p->gentle && p->q.len > GENTLE ? GENTLE : p->q.len;
		ssize_t did = write(p->ev.fd, buf_head(&p->q), n);

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0 && errno == EAGAIN)
			break;
		if (did < 0) {
			sink_close(p);
			return false;
		}
		buf_drop(&p->q, did);
		if (p->gentle)
			break;
	}
	if (p->s)
		stream_refill(p->s, p->lane, p->q.len);
	if (!p->q.len && p->eof) {
		sink_close(p);
		return false;
	}
	event_watch(&p->ev, p->q.len ? EPOLLOUT : 0);
	return true;
}

static void sink_ready(struct event *e, uint32_t events)
{
	(void) events;
	sink_flush((struct sink *) e);
}

void sink_start(struct sink *p, int fd, struct stream *s, int lane, void (*ended)(struct sink *), void *owner)
{
	*p = (struct sink) { .s = s, .lane = lane, .ended = ended, .owner = owner };
	event_init(&p->ev, fd, sink_ready);
}

void sink_data(struct sink *p, const void *b, size_t n)
{
	const uint8_t *from = b;

	if (p->ev.fd < 0) {
		/* Nobody reads: the bytes are dropped, and the sender continues. */
		if (p->s)
			stream_refill(p->s, p->lane, 0);
		return;
	}
	while (!p->q.len && !p->gentle && n) {
		ssize_t did = write(p->ev.fd, from, n);

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0 && errno == EAGAIN)
			break;
		if (did < 0) {
			sink_close(p);
			return;
		}
		from += did;
		n -= did;
	}
	buf_append(&p->q, from, n);
	if (p->gentle)
		event_watch(&p->ev, EPOLLOUT);
	else
		sink_flush(p);
}

void sink_eof(struct sink *p)
{
	p->eof = true;
	if (p->ev.fd >= 0 && !p->q.len)
		sink_close(p);
}

void sink_stop(struct sink *p)
{
	event_close(&p->ev);
	buf_free(&p->q);
	p->s = NULL;
}
