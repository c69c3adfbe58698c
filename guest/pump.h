/* Pumps between a file descriptor and a lane of a stream. */
#ifndef NM_PUMP_H
#define NM_PUMP_H

#include "mux.h"

struct source { /* descriptor → lane */
	struct event ev;
	struct waiter room;
	struct stream *s; /* NULL: read bytes are dropped */
	int lane;
	void (*ended)(struct source *p); /* the descriptor reached its end and was closed */
	void *owner;
};

struct sink { /* lane → descriptor */
	struct event ev;
	struct stream *s;
	int lane;
	struct buf q;
	bool eof;		       /* close the descriptor once q is written */
	bool gentle;		       /* a descriptor in blocking mode: write only as much as it has room for */
	void (*ended)(struct sink *p); /* closed: all is written, or the reader has gone */
	void *owner;
};

void source_start(struct source *p, int fd, struct stream *s, int lane, void (*ended)(struct source *), void *owner);
/* To be called when credit was received. */
void source_go(struct source *p);
void source_stop(struct source *p);

void sink_start(struct sink *p, int fd, struct stream *s, int lane, void (*ended)(struct sink *), void *owner);
void sink_data(struct sink *p, const void *b, size_t n);
void sink_eof(struct sink *p);
void sink_stop(struct sink *p);

#endif
