/* Sleeping until something may have come. */
#ifndef IVS_WAIT_H
#define IVS_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/fi_eq.h>

struct ivs_domain;

/* A way to sleep until something may have happened. */
struct ivs_wait {
	int epoll; /* -1: none */
	int timer;
	int event;
	bool armed;	  /* somebody sleeps, or will: signal what comes */
	uint64_t since;	  /* when this wait began, ns; 0: none has */
	uint64_t mark;	  /* how much had come then */
	uint64_t timeout; /* the last one, ns */
};

/* Opens a wait; domain: what may wake it, or NULL if only ivs_wait_signal() does. */
int ivs_wait_open(struct ivs_domain *domain, struct ivs_wait *wait);
void ivs_wait_close(struct ivs_wait *wait);
/* fi_control of an object that can be waited for: FI_GETWAIT and FI_GETWAITOBJ. Returns 0 or a negative error. */
int ivs_wait_control(const struct ivs_wait *wait, enum fi_wait_obj obj, int command, void *arg);
/* Makes the wait's descriptor readable, or takes that back. */
void ivs_wait_signal(struct ivs_wait *wait);
void ivs_wait_clear(struct ivs_wait *wait);
/* Makes the descriptor readable in ns. */
void ivs_wait_timer(struct ivs_wait *wait, uint64_t ns);
/* The time at which timeout ms from now are over; -1: never. */
uint64_t ivs_deadline(int timeout);
/* Is there to be one more poll before sleeping? *over: the deadline is over. */
bool ivs_wait_spin(uint64_t deadline, unsigned int *round, bool *over);
/* Sleeps until the wait is signaled, or ns or the deadline are over: then it returns false. */
bool ivs_wait_block(struct ivs_wait *wait, uint64_t ns, uint64_t deadline);

#endif /* IVS_WAIT_H */
