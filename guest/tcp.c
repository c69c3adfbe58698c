#include "tcp.h"
#include "pump.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct conn {
	struct stream *s;
	struct event connecting;
	struct source out; /* socket → host */
	struct sink in;	   /* host → socket */
	bool out_done, in_done;
	struct listener *waits; /* an accept without a connection */
	struct conn *next;	/* next waiting connection */
};

struct listener {
	struct event ev;
	struct stream *s;
	uint64_t id;
	struct conn *waiting;
	struct listener *next;
};

static struct listener *listeners;
static uint64_t listener_ids;

/* Parses A.B.C.D:PORT or [V6]:PORT; returns the length of the address, 0 if it is invalid. */
static socklen_t parse_addr(const char *s, struct sockaddr_storage *a)
{
	char host[64];
	const char *colon = s ? strrchr(s, ':') : NULL;
	struct sockaddr_in *v4 = (void *) a;
	struct sockaddr_in6 *v6 = (void *) a;
	uint64_t port;
	size_t n;

	memset(a, 0, sizeof(*a));
	if (!colon || !parse_number(colon + 1, 65535, &port))
		return 0;
	n = colon - s;
	if (n > 2 && s[0] == '[' && s[n - 1] == ']') {
		s++;
		n -= 2;
	}
	if (n >= sizeof(host))
		return 0;
	memcpy(host, s, n);
	host[n] = 0;
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof(*v4);
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		return sizeof(*v6);
	}
	return 0;
}

int tcp_dial(const char *addr)
{
	struct sockaddr_storage a;
	socklen_t n = parse_addr(addr, &a);
	int one = 1, fd;

	if (!n) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(a.ss_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *) &a, n))
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void add_addr(struct buf *b, const char *key, int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} a;
	socklen_t n = sizeof(a);
	char s[64] = "";

	memset(&a, 0, sizeof(a));
	if (name(fd, &a.any, &n))
		return;
	if (a.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &a.v4.sin_addr, s, sizeof(s));
		fields_addf(b, key, "%s:%d", s, ntohs(a.v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &a.v6.sin6_addr, s, sizeof(s));
		fields_addf(b, key, "[%s]:%d", s, ntohs(a.v6.sin6_port));
	}
}

static int sock_name(int fd, struct sockaddr *a, socklen_t *n)
{
	return getsockname(fd, a, n);
}

static int peer_name(int fd, struct sockaddr *a, socklen_t *n)
{
	return getpeername(fd, a, n);
}

static void unlist(struct conn *c)
{
	struct conn **p;

	if (!c->waits)
		return;
	for (p = &c->waits->waiting; *p && *p != c; p = &(*p)->next)
		;
	if (*p)
		*p = c->next;
	c->waits = NULL;
}

static void conn_free(struct conn *c)
{
	unlist(c);
	event_close(&c->connecting);
	source_stop(&c->out);
	sink_stop(&c->in);
	free_later(c);
}

static void conn_check(struct conn *c)
{
	if (!c->s || !c->out_done || !c->in_done)
		return;
	stream_close(c->s);
	c->s = NULL;
	conn_free(c);
}

static void out_ended(struct source *p)
{
	struct conn *c = p->owner;

	c->out_done = true;
	conn_check(c);
}

static void in_ended(struct sink *p)
{
	struct conn *c = p->owner;

	/* The source still has the socket open. */
	if (c->out.ev.fd >= 0)
		shutdown(c->out.ev.fd, SHUT_WR);
	c->in_done = true;
	conn_check(c);
}

static void connected(struct conn *c, int fd)
{
	struct buf b = { 0 };
	int one = 1, twin = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	struct buf held = c->in.q;
	bool eof = c->in.eof;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fields_add(&b, "state", "connected");
	add_addr(&b, "local", fd, sock_name);
	add_addr(&b, "peer", fd, peer_name);
	stream_message(c->s, &b);
	buf_free(&b);
	source_start(&c->out, fd, c->s, LANE_DATA, out_ended, c);
	sink_start(&c->in, twin, c->s, LANE_DATA, in_ended, c);
	/* Data that the host sent in advance. */
	if (held.len)
		sink_data(&c->in, buf_head(&held), held.len);
	buf_free(&held);
	if (eof && c->in.ev.fd >= 0)
		sink_eof(&c->in);
}

static void on_data(struct stream *s, int lane, const uint8_t *p, size_t n)
{
	struct conn *c = s->owner;

	if (lane != LANE_DATA)
		stream_refill(s, lane, 0);
	else if (c->connecting.fd >= 0 || c->waits)
		buf_append(&c->in.q, p, n);
	else
		sink_data(&c->in, p, n);
}

static void on_credit(struct stream *s, int lane, uint32_t n)
{
	struct conn *c = s->owner;

	(void) n;
	if (lane == LANE_DATA && c->out.s)
		source_go(&c->out);
}

static void on_eof(struct stream *s, int lane)
{
	struct conn *c = s->owner;

	if (lane != LANE_DATA)
		return;
	if (c->connecting.fd >= 0 || c->waits)
		c->in.eof = true;
	else
		sink_eof(&c->in);
}

static void on_end(struct stream *s, bool reset, const char *text)
{
	struct conn *c = s->owner;

	(void) reset;
	(void) text;
	c->s = NULL;
	conn_free(c);
}

static const struct stream_ops conn_ops = { on_data, on_credit, on_eof, on_end };

static struct conn *conn_new(struct mux *m, uint32_t id)
{
	struct conn *c = must_alloc(sizeof(*c));

	c->s = mux_take(m, id, &conn_ops, c);
	c->connecting.fd = c->out.ev.fd = c->in.ev.fd = -1;
	return c;
}

/* The errno is sent with it: a caller that only checks whether the peer exists treats ECONNREFUSED as success. */
static void refuse(struct conn *c, const char *addr, int err)
{
	struct buf b = { 0 };

	fields_addf(&b, "error", "%.100s: %s", addr, strerror(err));
	fields_addf(&b, "errno", "%d", err);
	stream_message(c->s, &b);
	buf_free(&b);
	stream_close(c->s);
	c->s = NULL;
	conn_free(c);
}

static void connect_ready(struct event *e, uint32_t events)
{
	struct conn *c = (struct conn *) ((char *) e - offsetof(struct conn, connecting));
	int err = 0, fd;
	socklen_t n = sizeof(err);

	(void) events;
	if (getsockopt(e->fd, SOL_SOCKET, SO_ERROR, &err, &n))
		err = errno;
	if (err) {
		refuse(c, "connect", err);
		return;
	}
	fd = fcntl(e->fd, F_DUPFD_CLOEXEC, 3);
	event_close(e);
	if (fd < 0)
		refuse(c, "connect", errno);
	else
		connected(c, fd);
}

void tcp_open(struct mux *m, uint32_t id, const struct fields *h)
{
	const char *addr = fields_get(h, "addr");
	struct sockaddr_storage a;
	socklen_t n = parse_addr(addr, &a);
	struct conn *c;
	int fd;

	if (!n) {
		mux_refuse(m, id, "%.100s: not an address and a port", addr ? addr : "");
		return;
	}
	c = conn_new(m, id);
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || (connect(fd, (struct sockaddr *) &a, n) && errno != EINPROGRESS)) {
		refuse(c, addr, errno);
		if (fd >= 0)
			close(fd);
		return;
	}
	event_init(&c->connecting, fd, connect_ready);
	event_watch(&c->connecting, EPOLLOUT);
}

static void listen_ready(struct event *e, uint32_t events)
{
	struct listener *l = (struct listener *) e;

	(void) events;
	while (l->waiting) {
		struct conn *c = l->waiting;
		int fd = accept4(e->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		unlist(c);
		connected(c, fd);
	}
	event_watch(e, 0); /* until the host waits for the next connection */
}

static void listener_end(struct stream *s, bool reset, const char *text)
{
	struct listener *l = s->owner, **p = &listeners;

	(void) reset;
	(void) text;
	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	while (l->waiting) {
		struct conn *c = l->waiting;

		unlist(c);
		stream_close(c->s);
		c->s = NULL;
		conn_free(c);
	}
	event_close(&l->ev);
	free_later(l);
}

static void listener_data(struct stream *s, int lane, const uint8_t *p, size_t n)
{
	(void) p;
	(void) n;
	stream_refill(s, lane, 0);
}

static void listener_credit(struct stream *s, int lane, uint32_t n)
{
	(void) s;
	(void) lane;
	(void) n;
}

static void listener_eof(struct stream *s, int lane)
{
	(void) s;
	(void) lane;
}

static const struct stream_ops listener_ops = { listener_data, listener_credit, listener_eof, listener_end };

void listen_open(struct mux *m, uint32_t id, const struct fields *h)
{
	const char *addr = fields_get(h, "addr");
	struct sockaddr_storage a;
	socklen_t n = parse_addr(addr, &a);
	struct listener *l;
	struct buf b = { 0 };
	int fd, one = 1;

	if (!n) {
		mux_refuse(m, id, "%.100s: not an address and a port", addr ? addr : "");
		return;
	}
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *) &a, n) || listen(fd, 128)) {
		mux_refuse(m, id, "%.100s: %s", addr, strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	l = must_alloc(sizeof(*l));
	event_init(&l->ev, fd, listen_ready);
	l->id = ++listener_ids;
	l->next = listeners;
	listeners = l;
	l->s = mux_take(m, id, &listener_ops, l);
	fields_addf(&b, "listener", "%llu", (unsigned long long) l->id);
	add_addr(&b, "local", fd, sock_name);
	stream_message(l->s, &b);
	buf_free(&b);
}

void accept_open(struct mux *m, uint32_t id, const struct fields *h)
{
	struct listener *l = listeners;
	struct conn *c, **p;
	uint64_t n;

	if (!parse_number(fields_get(h, "listener"), UINT64_MAX, &n))
		n = 0;
	while (l && l->id != n)
		l = l->next;
	if (!l) {
		mux_refuse(m, id, "no such listener");
		return;
	}
	c = conn_new(m, id);
	c->waits = l;
	for (p = &l->waiting; *p; p = &(*p)->next)
		;
	*p = c;
	event_watch(&l->ev, EPOLLIN);
}
