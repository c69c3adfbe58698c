#include "loop.h"
#include "buf.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { ROUND = 64 }; /* events handled at a time */

static int epfd = -1;
static struct epoll_event events[ROUND];
static int nevents;
static struct event *always_list;
static struct timer *timers;
static struct task *tasks;

struct garbage {
	void *p;
	struct garbage *next;
};
static struct garbage *garbage;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

void loop_init(void)
{
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0)
		die("epoll: %s", strerror(errno));
}

void event_init(struct event *e, int fd, void (*ready)(struct event *, uint32_t))
{
	*e = (struct event) { .fd = fd, .ready = ready };
}

static void unlist(struct event *e)
{
	struct event **p = &always_list;

	while (*p && *p != e)
		p = &(*p)->next;
	if (*p)
		*p = e->next;
}

void event_watch(struct event *e, uint32_t mask)
{
	struct epoll_event ev = { .events = mask, .data.ptr = e };
	int op;

	if (e->fd < 0 || (mask == e->mask && (e->added || !mask)))
		return;
	if (e->always) {
		if (mask && !e->mask) {
			e->next = always_list;
			always_list = e;
		} else if (!mask && e->mask) {
			unlist(e);
		}
		e->mask = mask;
		return;
	}
	/* An unwatched descriptor is removed from the list, because EPOLLHUP cannot be masked out. */
	op = !mask ? EPOLL_CTL_DEL : e->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (epoll_ctl(epfd, op, e->fd, &ev) < 0) {
		if (errno == EPERM && op == EPOLL_CTL_ADD) {
			e->always = true;
			event_watch(e, mask);
			return;
		}
		die("epoll_ctl: %s", strerror(errno));
	}
	e->added = mask != 0;
	e->mask = mask;
}

void event_close(struct event *e)
{
	if (e->fd < 0)
		return;
	event_watch(e, 0);
	close(e->fd);
	e->fd = -1;
	for (int i = 0; i < nevents; i++)
		if (events[i].data.ptr == e)
			events[i].data.ptr = NULL;
}

void timer_clear(struct timer *t)
{
	struct timer **p = &timers;

	if (!t->at)
		return;
	while (*p && *p != t)
		p = &(*p)->next;
	if (*p)
		*p = t->next;
	t->at = 0;
}

void timer_set(struct timer *t, uint64_t ns_from_now)
{
	struct timer **p = &timers;

	timer_clear(t);
	t->at = now_ns() + ns_from_now;
	while (*p && (*p)->at <= t->at)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}

void task_queue(struct task *t)
{
	struct task **p = &tasks;

	if (t->queued)
		return;
	t->queued = true;
	t->next = NULL;
	while (*p)
		p = &(*p)->next;
	*p = t;
}

void task_cancel(struct task *t)
{
	struct task **p = &tasks;

	if (!t->queued)
		return;
	while (*p && *p != t)
		p = &(*p)->next;
	if (*p)
		*p = t->next;
	t->queued = false;
}

void free_later(void *p)
{
	struct garbage *g = must_alloc(sizeof(*g));

	g->p = p;
	g->next = garbage;
	garbage = g;
}

void loop_forget(void)
{
	while (garbage) {
		struct garbage *g = garbage;

		garbage = g->next;
		free(g->p);
		free(g);
	}
}

static void run_tasks(void)
{
	struct task *t;

	while ((t = tasks)) {
		tasks = t->next;
		t->queued = false;
		t->run(t);
	}
}

static int wait_ms(void)
{
	uint64_t now;

	if (always_list)
		return 0;
	if (!timers)
		return -1;
	now = now_ns();
	return timers->at <= now ? 0 : (timers->at - now) / 1000000 + 1;
}

void loop_run(void)
{
	for (;;) {
		run_tasks();
		loop_forget();
		nevents = epoll_wait(epfd, events, ROUND, wait_ms());
		if (nevents < 0) {
			nevents = 0;
			if (errno != EINTR)
				die("epoll_wait: %s", strerror(errno));
		}
		for (int i = 0; i < nevents; i++) {
			struct event *e = events[i].data.ptr;

			if (e && e->mask)
				e->ready(e, events[i].events);
		}
		nevents = 0;
		for (struct event *e = always_list, *next; e; e = next) {
			next = e->next;
			e->ready(e, e->mask);
		}
		while (timers && timers->at <= now_ns()) {
			struct timer *t = timers;

			timer_clear(t);
			t->fire(t);
		}
	}
}
