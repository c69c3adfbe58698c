/* The event loop: file descriptors, timers, signals. One thread. */
#ifndef NM_LOOP_H
#define NM_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event {
	int fd;
	uint32_t mask; /* EPOLLIN, EPOLLOUT; 0: not watched */
	bool added;
	bool always; /* a file that epoll does not support: ready whenever it is watched */
	void (*ready)(struct event *e, uint32_t events);
	struct event *next; /* next one with always */
};

struct timer {
	uint64_t at; /* CLOCK_MONOTONIC, ns; 0: not set */
	void (*fire)(struct timer *t);
	struct timer *next;
};

struct task { /* to be run once this round's events are handled */
	bool queued;
	void (*run)(struct task *t);
	struct task *next;
};

void loop_init(void);
void event_init(struct event *e, int fd, void (*ready)(struct event *, uint32_t));
void event_watch(struct event *e, uint32_t mask);
/* Removes and closes the descriptor. Safe within any callback. */
void event_close(struct event *e);
void timer_set(struct timer *t, uint64_t ns_from_now);
void timer_clear(struct timer *t);
void task_queue(struct task *t);
/* Removes t from the list, before its memory is freed. */
void task_cancel(struct task *t);
/* Frees p once no event of this round can refer to it. */
void free_later(void *p);
/* Frees the memory passed to free_later; the loop calls it once per round. */
void loop_forget(void);
void loop_run(void) __attribute__((noreturn));
uint64_t now_ns(void);

#endif
