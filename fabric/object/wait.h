/* Sleeping until something may have happened. */
#ifndef IVS_WAIT_H
#define IVS_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/fi_eq.h>

struct ivs_domain;

/* A means to sleep until something may have happened. */
struct ivs_wait {
	int epoll; /* -1: none */
	int timer;
	int event;
	bool armed;	  /* a thread sleeps or is about to: signal events */
	uint64_t since;	  /* start of this wait in ns, 0: not waiting */
	uint64_t mark;	  /* amount received at that time */
	uint64_t timeout; /* the last timeout, ns */
};

/* Opens a wait. domain: what may wake it, or NULL if only ivs_wait_signal() does. Returns 0 or a negative error. */
int ivs_wait_open(struct ivs_domain *domain, struct ivs_wait *wait);
void ivs_wait_close(struct ivs_wait *wait);
/*
 * Implements fi_control for an object that can be waited for: FI_GETWAIT and FI_GETWAITOBJ. Returns 0 or a negative
 * error.
 */
int ivs_wait_control(const struct ivs_wait *wait, enum fi_wait_obj obj, int command, void *arg);
/* Makes the wait's descriptor readable, or undoes that. */
void ivs_wait_signal(struct ivs_wait *wait);
void ivs_wait_clear(struct ivs_wait *wait);
/* Makes the descriptor readable in ns. */
void ivs_wait_timer(struct ivs_wait *wait, uint64_t ns);
/* Returns the time in ms of ivs_now_ms() after which timeout ms have passed, or UINT64_MAX if timeout is negative. */
uint64_t ivs_deadline(int timeout);
/* Returns true if one more poll is to be made before sleeping. Sets *over if the deadline has passed. */
bool ivs_wait_spin(uint64_t deadline, unsigned int *round, bool *over);
/*
 * Sleeps until the wait is signaled, ns have passed or the deadline is reached. Returns false if the deadline had
 * already passed.
 */
bool ivs_wait_block(struct ivs_wait *wait, uint64_t ns, uint64_t deadline);

#endif /* IVS_WAIT_H */
