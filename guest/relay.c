#include "relay.h"
#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	CLIENTS_MAX = 1024,
	CLIENT_STREAMS = 4,
	CLIENT_OUT = 4 << 20, /* unread bytes of a client above which it is dropped */
	GROUPS = 1024,
};

struct client {
	struct mux m;
	struct waiter room; /* waits for the host's carrier */
	struct ucred cred;
	size_t ngroups;
	gid_t *groups;
};

struct pair {
	struct stream *client, *host;
};

static struct event server;
static struct mux *host;
static unsigned nclients;

static struct stream *other(struct stream *s)
{
	struct pair *p = s->owner;

	return s == p->client ? p->host : p->client;
}

static void on_data(struct stream *s, int lane, const uint8_t *b, size_t n)
{
	struct stream *o = other(s);
	struct client *c;

	stream_data(o, lane, b, n);
	if (o->m != host)
		return;
	/* The client waits for the host, instead of its bytes being queued here. */
	c = s->m->owner;
	if (!mux_room(host, &c->room))
		mux_pause(&c->m, true);
}

static void room(struct waiter *w)
{
	struct client *c = (struct client *) ((char *) w - offsetof(struct client, room));

	mux_pause(&c->m, false);
}

static void on_credit(struct stream *s, int lane, uint32_t n)
{
	stream_grant(other(s), lane, n);
}

static void on_eof(struct stream *s, int lane)
{
	stream_eof(other(s), lane);
}

static void on_end(struct stream *s, bool reset, const char *text)
{
	struct stream *o = other(s);
	struct pair *p = s->owner;

	if (reset)
		stream_reset(o, "%s", text);
	else
		stream_close(o);
	free_later(p);
}

static const struct stream_ops ops = { on_data, on_credit, on_eof, on_end };

static void client_open(struct mux *m, uint32_t id, const char *kind, const struct fields *h)
{
	struct client *c = m->owner;
	const char *f;
	struct buf b = { 0 };
	struct pair *p;
	size_t at = 0;

	if (strcmp(kind, "exec") || !fields_get(h, "vm")) {
		mux_refuse(m, id, "only programs in other VMs can be asked for here");
		return;
	}
	if (host->dead) {
		mux_refuse(m, id, "the channel to the host has ended");
		return;
	}
	buf_append(&b, "exec", 5);
	while ((f = fields_each(h, &at)))
		if (strncmp(f, "uid=", 4) && strncmp(f, "gid=", 4) && strncmp(f, "group=", 6))
			buf_append(&b, f, strlen(f) + 1);
	fields_addf(&b, "uid", "%u", c->cred.uid);
	fields_addf(&b, "gid", "%u", c->cred.gid);
	for (size_t i = 0; i < c->ngroups; i++)
		fields_addf(&b, "group", "%u", c->groups[i]);
	if (b.len > HEADER_MAX) {
		mux_refuse(m, id, "the command and its environment are too long");
		buf_free(&b);
		return;
	}
	p = must_alloc(sizeof(*p));
	p->client = mux_take(m, id, &ops, p);
	p->host = mux_open(host, &b, &ops, p);
	buf_free(&b);
}

static void client_end(struct mux *m, const char *why)
{
	struct client *c = m->owner;

	(void) why;
	waiter_cancel(host, &c->room);
	free(c->groups);
	nclients--;
	free_later(c);
}

static void server_ready(struct event *e, uint32_t events)
{
	struct client *c;
	socklen_t n = sizeof(c->cred);
	struct buf hello = { 0 };
	int fd = accept4(e->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void) events;
	if (fd < 0)
		return;
	c = must_alloc(sizeof(*c));
	if (nclients == CLIENTS_MAX || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->cred, &n)) {
		close(fd);
		free(c);
		return;
	}
	c->groups = must_alloc(GROUPS * sizeof(*c->groups));
	n = GROUPS * sizeof(*c->groups);
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, c->groups, &n))
		c->ngroups = n / sizeof(*c->groups);
	nclients++;
	c->room.go = room;
	c->m.owner = c;
	c->m.remote_max = CLIENT_STREAMS;
	c->m.out_max = CLIENT_OUT;
	c->m.on_open = client_open;
	c->m.on_end = client_end;
	mux_start(&c->m, fd);
	fields_add(&hello, "protocol", "1");
	mux_hello(&c->m, &hello);
	buf_free(&hello);
}

void relay_listen(const char *path, struct mux *to)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	host = to;
	if (strlen(path) >= sizeof(a.sun_path))
		die("%s: too long for a socket", path);
	strcpy(a.sun_path, path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *) &a, sizeof(a)) || chmod(path, 0666) || listen(fd, 128))
		die("%s: %s", path, strerror(errno));
	event_init(&server, fd, server_ready);
	event_watch(&server, EPOLLIN);
}
