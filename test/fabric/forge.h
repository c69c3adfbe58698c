/* Another VM's hand in the region: a ring that is not its own, and messages that it makes up there. */
#ifndef FORGE_H
#define FORGE_H

#include "harness.h"

struct forge {
	uint8_t *ring;
	struct nm_ring_ctl *ctl;
	struct nm_conn *conn;
	struct nm_slot *sender, *receiver;
	uint8_t *activity; /* the receiver's byte for the sender */
	uint32_t mask, shift, lap0;
	uint64_t head; /* lines */
};

/* The ring from one slot to another, in which messages of head lines were sent so far. */
struct forge forge_ring(uint32_t from, uint32_t to, uint64_t head);

/*
 * The ring from one rank to another, by their addresses (fi_getname), after the messages that are there. What
 * the last one of kind op brought is copied to tag, and to bytes, up to len: its fixed part.
 */
struct forge forge_next(const uint8_t *from, const uint8_t *to, uint8_t op, uint64_t *tag, void *bytes, size_t len);

/* The line at a position, which is any number. */
uint8_t *forge_line(const struct forge *f, uint64_t pos);

/*
 * Writes a message as soon as there is room. false: *over became 1 meanwhile, nobody reads any more.
 * payload: the fixed part and what follows, len bytes.
 */
bool forge(struct forge *f, const uint32_t *over, uint8_t op, uint8_t flags, uint64_t tag, const void *payload,
	   size_t len);

#endif /* FORGE_H */
