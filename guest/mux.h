/* Streams over one carrier: the channel to the host, or a local client's socket. */
#ifndef NM_MUX_H
#define NM_MUX_H

#include "buf.h"
#include "fields.h"
#include "frame.h"
#include "loop.h"

struct mux;
struct stream;

/* Handlers of a stream's frames. Credit was counted before they are called. */
struct stream_ops {
	void (*data)(struct stream *s, int lane, const uint8_t *p, size_t n);
	void (*credit)(struct stream *s, int lane, uint32_t n);
	void (*eof)(struct stream *s, int lane);
	/*
	 * The other side closed or reset the stream (text), or the carrier ended; the stream is gone when this
	 * returns.
	 */
	void (*end)(struct stream *s, bool reset, const char *text);
};

struct stream {
	struct mux *m;
	uint32_t id;
	uint32_t allow[LANES];	/* bytes the other side may still send */
	uint32_t credit[LANES]; /* bytes this side may still send */
	bool in_eof[LANES], out_eof[LANES];
	bool sent_end;
	const struct stream_ops *ops; /* NULL: closed on this side */
	void *owner;
	struct stream *next; /* in the table */
};

struct waiter { /* waits for room in a carrier's queue */
	void (*go)(struct waiter *w);
	struct waiter *next;
	bool queued;
};

enum { STREAM_BUCKETS = 64 };

struct mux {
	struct event ev;
	struct task flush;
	bool initiator; /* numbers its streams odd */
	bool hello, dead, paused;
	bool blocking; /* the carrier's descriptor is in blocking mode */
	struct buf in, out, open;
	uint32_t open_id, next_id;
	struct stream *table[STREAM_BUCKETS];
	unsigned remote, remote_max; /* streams of the other side, and their maximum */
	size_t out_max;		     /* a carrier with more queued bytes is ended */
	struct waiter *waiters;
	/* A stream of the other side: accept it with mux_take or reject it with mux_refuse. */
	void (*on_open)(struct mux *m, uint32_t id, const char *kind, const struct fields *h);
	void (*on_hello)(struct mux *m, const struct fields *f); /* may be NULL */
	void (*on_end)(struct mux *m, const char *why);
	void *owner;
};

/* Starts a mux on fd, which is set to non-blocking mode. The callbacks must be set before. */
void mux_start(struct mux *m, int fd);
/* Appends a frame to the data that is sent at the end of this round. */
void mux_frame(struct mux *m, int type, int lane, uint32_t id, const void *p, size_t n);
void mux_hello(struct mux *m, const struct buf *fields);
/* Returns whether more data should be queued; if not, w is called when it should. */
bool mux_room(struct mux *m, struct waiter *w);
void waiter_cancel(struct mux *m, struct waiter *w);
/* Accepts or rejects an offered stream. */
struct stream *mux_take(struct mux *m, uint32_t id, const struct stream_ops *ops, void *owner);
void mux_refuse(struct mux *m, uint32_t id, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Opens a stream; payload is kind, NUL, fields. */
struct stream *mux_open(struct mux *m, const struct buf *payload, const struct stream_ops *ops, void *owner);
/* Stops or continues reading frames from the carrier. */
void mux_pause(struct mux *m, bool pause);
/* Ends the carrier: every stream ends, and on_end is called. */
void mux_fail(struct mux *m, const char *why);
/* Sends the queued data, waiting for the carrier. */
void mux_drain(struct mux *m);

/* Returns how many of n bytes, limited by credit and the size of a frame, may be sent on a lane now. */
size_t stream_may_send(const struct stream *s, int lane, size_t n);
void stream_data(struct stream *s, int lane, const void *p, size_t n);
void stream_message(struct stream *s, const struct buf *fields);
void stream_eof(struct stream *s, int lane);
void stream_grant(struct stream *s, int lane, uint32_t n);
/* Grants the bytes missing to the full window while `held` bytes wait on this side. */
void stream_refill(struct stream *s, int lane, size_t held);
/* Ends this side's part; the owner is not called any more, and s must not be used. */
void stream_close(struct stream *s);
void stream_reset(struct stream *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
