#include "mux.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	OUT_HIGH = 256 * 1024, /* bytes in the queue above which data waits */
	OUT_LOW = 128 * 1024,  /* bytes below which it continues */
	READ_SIZE = 64 * 1024,
	READS = 32, /* reads per round: a virtio port returns a page at a time */
};

static void parse(struct mux *m);

static struct stream **slot(struct mux *m, uint32_t id)
{
	struct stream **p = &m->table[id / 2 % STREAM_BUCKETS];

	while (*p && (*p)->id != id)
		p = &(*p)->next;
	return p;
}

static void watch(struct mux *m)
{
	if (!m->dead)
		event_watch(&m->ev, (m->paused ? 0 : EPOLLIN) | (m->out.len ? EPOLLOUT : 0));
}

static void wake(struct mux *m)
{
	struct waiter *w = m->waiters, *next;

	m->waiters = NULL;
	for (struct waiter *x = w; x; x = x->next)
		x->queued = false;
	for (; w; w = next) {
		next = w->next;
		w->go(w);
	}
}

static void flush(struct mux *m)
{
	while (m->out.len && !m->dead) {
		ssize_t n = write(m->ev.fd, buf_head(&m->out), m->out.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			mux_fail(m, strerror(errno));
			return;
		}
		if (n <= 0)
			break;
		buf_drop(&m->out, n);
		if (m->waiters && m->out.len < OUT_LOW)
			wake(m);
	}
	watch(m);
}

static void flush_task(struct task *t)
{
	flush((struct mux *) ((char *) t - offsetof(struct mux, flush)));
}

static void ready(struct event *e, uint32_t events)
{
	struct mux *m = (struct mux *) e;

	if (events & EPOLLOUT)
		flush(m);
	if (m->dead || m->paused || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	for (int i = 0; i < READS && !m->dead && !m->paused; i++) {
		ssize_t n = read(m->ev.fd, buf_reserve(&m->in, READ_SIZE), READ_SIZE);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			mux_fail(m, n ? strerror(errno) : "the other side has gone");
			return;
		}
		buf_added(&m->in, n);
		parse(m);
	}
}

void mux_start(struct mux *m, int fd)
{
	event_init(&m->ev, fd, ready);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	m->flush.run = flush_task;
	m->next_id = m->initiator ? 1 : 2;
	if (!m->remote_max)
		m->remote_max = 4096;
	if (!m->out_max)
		m->out_max = 64 << 20;
	watch(m);
}

void mux_frame(struct mux *m, int type, int lane, uint32_t id, const void *p, size_t n)
{
	struct frame f = { .type = type, .lane = lane, .stream = id, .len = n };
	uint8_t *to;

	if (m->dead)
		return;
	to = buf_reserve(&m->out, FRAME_HEADER + n);
	frame_put(to, &f);
	if (n)
		memcpy(to + FRAME_HEADER, p, n);
	buf_added(&m->out, FRAME_HEADER + n);
	task_queue(&m->flush);
}

void mux_hello(struct mux *m, const struct buf *fields)
{
	mux_frame(m, T_HELLO, 0, 0, buf_head(fields), fields->len);
}

bool mux_room(struct mux *m, struct waiter *w)
{
	if (m->out.len < OUT_HIGH)
		return true;
	if (!w->queued) {
		w->queued = true;
		w->next = m->waiters;
		m->waiters = w;
	}
	return false;
}

void waiter_cancel(struct mux *m, struct waiter *w)
{
	struct waiter **p = &m->waiters;

	if (!w->queued)
		return;
	while (*p && *p != w)
		p = &(*p)->next;
	if (*p)
		*p = w->next;
	w->queued = false;
}

static struct stream *add(struct mux *m, uint32_t id, const struct stream_ops *ops, void *owner)
{
	struct stream *s = must_alloc(sizeof(*s));

	*s = (struct stream) { .m = m, .id = id, .ops = ops, .owner = owner };
	for (int i = 0; i < LANES; i++)
		s->allow[i] = s->credit[i] = lane_initial(i);
	*slot(m, id) = s;
	return s;
}

struct stream *mux_take(struct mux *m, uint32_t id, const struct stream_ops *ops, void *owner)
{
	m->remote++;
	return add(m, id, ops, owner);
}

void mux_refuse(struct mux *m, uint32_t id, const char *format, ...)
{
	char s[TEXT_MAX];
	va_list a;

	va_start(a, format);
	vsnprintf(s, sizeof(s), format, a);
	va_end(a);
	mux_frame(m, T_RESET, 0, id, s, strlen(s));
}

struct stream *mux_open(struct mux *m, const struct buf *payload, const struct stream_ops *ops, void *owner)
{
	const uint8_t *p = buf_head(payload);
	struct stream *s;

	while (!m->next_id || *slot(m, m->next_id))
		m->next_id += 2;
	s = add(m, m->next_id, ops, owner);
	m->next_id += 2;
	for (size_t at = 0; at < payload->len; at += FRAME_MAX) {
		size_t left = payload->len - at;
		bool more = left > FRAME_MAX;

		mux_frame(m, T_OPEN, more, s->id, p + at, more ? FRAME_MAX : left);
	}
	return s;
}

void mux_pause(struct mux *m, bool pause)
{
	if (m->paused == pause || m->dead)
		return;
	m->paused = pause;
	if (!pause)
		parse(m);
	watch(m);
}

static bool is_remote(const struct mux *m, uint32_t id)
{
	return (id & 1) != m->initiator;
}

/* Removes a stream from the table; its memory stays until the end of the round. */
static void forget(struct stream *s)
{
	struct stream **p = slot(s->m, s->id);

	if (*p != s)
		return;
	*p = s->next;
	if (is_remote(s->m, s->id))
		s->m->remote--;
	free_later(s);
}

void mux_fail(struct mux *m, const char *why)
{
	if (m->dead)
		return;
	m->dead = true;
	task_cancel(&m->flush);
	event_close(&m->ev);
	for (int i = 0; i < STREAM_BUCKETS; i++) {
		struct stream *s;

		while ((s = m->table[i])) {
			forget(s);
			s->sent_end = true;
			if (s->ops)
				s->ops->end(s, true, why);
		}
	}
	buf_free(&m->in);
	buf_free(&m->out);
	buf_free(&m->open);
	m->on_end(m, why);
}

void mux_drain(struct mux *m)
{
	while (m->out.len && !m->dead) {
		struct pollfd p = { .fd = m->ev.fd, .events = POLLOUT };

		if (poll(&p, 1, 1000) <= 0 || p.revents & (POLLERR | POLLHUP))
			return;
		flush(m);
	}
}

static const char *take_open(struct mux *m, const struct frame *f, const uint8_t *p)
{
	const char *kind, *end;
	struct fields h;

	if (!is_remote(m, f->stream))
		return "OPEN of a stream with a number of this side";
	if (m->open_id && m->open_id != f->stream)
		return "OPEN of a stream within that of another";
	if (m->open.len + f->len > HEADER_MAX)
		return "a header that is too long";
	m->open_id = f->stream;
	buf_append(&m->open, p, f->len);
	if (f->lane)
		return NULL;
	m->open_id = 0;
	if (*slot(m, f->stream))
		return "OPEN of a stream that is open";
	kind = (const char *) buf_head(&m->open);
	end = memchr(kind, 0, m->open.len);
	if (!end || end == kind)
		return "a stream without a kind";
	h = (struct fields) { end + 1, m->open.len - (end + 1 - kind) };
	if (!fields_valid(h.p, h.len))
		return "a header that is not made of fields";
	if (m->remote >= m->remote_max)
		mux_refuse(m, f->stream, "too many streams are open");
	else
		m->on_open(m, f->stream, kind, &h);
	buf_drop(&m->open, m->open.len);
	buf_free(&m->open);
	return NULL;
}

static const char *take_stream(struct mux *m, const struct frame *f, const uint8_t *p)
{
	struct stream *s = *slot(m, f->stream);
	const struct stream_ops *ops;
	int lane = f->lane;
	uint32_t n;
	char text[TEXT_MAX + 1];

	if (!s)
		return NULL; /* late frames of a stream that this side has finished */
	ops = s->ops;
	switch (f->type) {
	case T_DATA:
		if (s->in_eof[lane])
			return "DATA after EOF";
		if (s->allow[lane] < f->len)
			return "DATA beyond its credit";
		s->allow[lane] -= f->len;
		if (ops)
			ops->data(s, lane, p, f->len);
		return NULL;
	case T_CREDIT:
		n = get32(p);
		if (!n || n > lane_max(lane) - s->credit[lane])
			return "CREDIT beyond its measure";
		s->credit[lane] += n;
		if (ops)
			ops->credit(s, lane, n);
		return NULL;
	case T_EOF:
		if (s->in_eof[lane])
			return NULL;
		s->in_eof[lane] = true;
		if (ops)
			ops->eof(s, lane);
		return NULL;
	}
	memcpy(text, p, f->len);
	text[f->len] = 0;
	if (!s->sent_end) {
		s->sent_end = true;
		mux_frame(m, T_CLOSE, 0, s->id, NULL, 0);
	}
	forget(s);
	if (ops)
		ops->end(s, f->type == T_RESET, text);
	return NULL;
}

static const char *take(struct mux *m, const struct frame *f, const uint8_t *p)
{
	struct fields h = { (const char *) p, f->len };
	static char why[TEXT_MAX + 1];

	if (f->stream) {
		if (!m->hello)
			return "a stream before HELLO";
		return f->type == T_OPEN ? take_open(m, f, p) : take_stream(m, f, p);
	}
	switch (f->type) {
	case T_HELLO:
		if (m->hello || !fields_valid(h.p, h.len))
			return "a HELLO that cannot be";
		if (!fields_get(&h, "protocol") || strcmp(fields_get(&h, "protocol"), "1"))
			return "another version of the protocol";
		m->hello = true;
		if (m->on_hello)
			m->on_hello(m, &h);
		return NULL;
	case T_PING: mux_frame(m, T_PONG, 0, 0, p, f->len); return NULL;
	case T_RESET:
		memcpy(why, p, f->len);
		why[f->len] = 0;
		return why;
	}
	return NULL;
}

static void parse(struct mux *m)
{
	while (!m->dead && !m->paused && m->in.len >= FRAME_HEADER) {
		struct frame f;
		const char *wrong = frame_get(buf_head(&m->in), &f);

		if (!wrong) {
			if (m->in.len < FRAME_HEADER + f.len)
				return;
			wrong = take(m, &f, buf_head(&m->in) + FRAME_HEADER);
		}
		if (m->dead)
			return;
		if (!wrong && m->out.len > m->out_max)
			wrong = "requests without reading the answers";
		if (wrong) {
			char s[TEXT_MAX + 64];

			snprintf(s, sizeof(s), "the other side sent %s", wrong);
			mux_fail(m, s);
			return;
		}
		buf_drop(&m->in, FRAME_HEADER + f.len);
	}
}

size_t stream_may_send(const struct stream *s, int lane, size_t n)
{
	if (n > s->credit[lane])
		n = s->credit[lane];
	if (s->sent_end || s->out_eof[lane])
		n = 0;
	return n < FRAME_MAX ? n : FRAME_MAX;
}

void stream_data(struct stream *s, int lane, const void *p, size_t n)
{
	s->credit[lane] -= n;
	mux_frame(s->m, T_DATA, lane, s->id, p, n);
}

void stream_message(struct stream *s, const struct buf *fields)
{
	/* An agent's few messages fit into the initial credit; others are dropped. */
	if (fields->len <= MESSAGE_MAX && stream_may_send(s, LANE_MESSAGE, fields->len) == fields->len)
		stream_data(s, LANE_MESSAGE, buf_head(fields), fields->len);
}

void stream_eof(struct stream *s, int lane)
{
	if (s->out_eof[lane] || s->sent_end)
		return;
	s->out_eof[lane] = true;
	mux_frame(s->m, T_EOF, lane, s->id, NULL, 0);
}

void stream_grant(struct stream *s, int lane, uint32_t n)
{
	uint8_t b[4];

	if (s->sent_end)
		return;
	s->allow[lane] += n;
	put32(b, n);
	mux_frame(s->m, T_CREDIT, lane, s->id, b, sizeof(b));
}

void stream_refill(struct stream *s, int lane, size_t held)
{
	uint32_t max = lane_max(lane), have = s->allow[lane] + held;

	if (!s->in_eof[lane] && have < max && max - have >= max / 4)
		stream_grant(s, lane, max - have);
}

static void detach(struct stream *s)
{
	s->ops = NULL;
	s->owner = NULL;
	s->sent_end = true;
}

void stream_close(struct stream *s)
{
	if (!s->sent_end)
		mux_frame(s->m, T_CLOSE, 0, s->id, NULL, 0);
	detach(s);
}

void stream_reset(struct stream *s, const char *format, ...)
{
	char text[TEXT_MAX];
	va_list a;

	va_start(a, format);
	vsnprintf(text, sizeof(text), format, a);
	va_end(a);
	if (!s->sent_end)
		mux_frame(s->m, T_RESET, 0, s->id, text, strlen(text));
	detach(s);
}
