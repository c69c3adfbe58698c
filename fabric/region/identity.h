/*
 * The identity of another process, as the kernel reports it. Each rank listens at a socket in the abstract name
 * space whose name follows from its secret key. Another VM can write all that a slot says, and can
 * bring bytes of its choice into a rank's memory, but cannot open a socket here, nor know
 * the name of one. So a rank that has read a key from a process's memory asks the kernel
 * who listens at that key's name: it must be that process, and of this user.
 */
#ifndef IVS_IDENTITY_H
#define IVS_IDENTITY_H

#include <stdint.h>
#include <sys/types.h>

/* Opens the door of a slot's owner. Returns its descriptor, or -1: nobody can prove who we are. */
int ivs_identity_open(const uint8_t *key, uint32_t slot, uint32_t epoch);

/* Empties the door's queue. The ranks in it wait for no answer. */
void ivs_identity_clear(int door);

/* The process that listens at the door of this key, slot and epoch; 0: none of this user's. */
pid_t ivs_identity_owner(const uint8_t *key, uint32_t slot, uint32_t epoch);

#endif /* IVS_IDENTITY_H */
