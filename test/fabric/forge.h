/* Plays another VM in the region: writes forged messages into a ring that is not its own. */
#ifndef FORGE_H
#define FORGE_H

#include "harness.h"

struct forge {
	uint8_t *ring;
	struct nm_ring_ctl *ctl;
	struct nm_conn *conn;
	struct nm_slot *sender, *receiver;
	uint8_t *activity; /* the sender's byte at the receiver */
	uint32_t mask, shift, lap0;
	uint64_t head; /* lines */
};

/* Returns the ring from one slot to another, in which messages of head lines were sent so far. */
struct forge forge_ring(uint32_t from, uint32_t to, uint64_t head);

/*
 * Returns the ring from one rank to another, by their addresses (fi_getname), after the messages in it. Copies the tag
 * of the last message of kind op to tag, and up to len bytes of its fixed part to bytes.
 */
struct forge forge_next(const uint8_t *from, const uint8_t *to, uint8_t op, uint64_t *tag, void *bytes, size_t len);

/* Returns the line at any position. */
uint8_t *forge_line(const struct forge *f, uint64_t pos);

/*
 * Writes a message as soon as there is room. payload: the fixed part and the bytes after it, len bytes. Returns false
 * if *over became 1 in the meantime, because nobody reads any more.
 */
bool forge(struct forge *f, const uint32_t *over, uint8_t op, uint8_t flags, uint64_t tag, const void *payload,
	   size_t len);

#endif /* FORGE_H */
