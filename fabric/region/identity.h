/*
 * The identity of another process, as the kernel reports it. Each rank listens at a socket in the abstract name space
 * whose name follows from its secret key. Another VM can write every field of a slot, and can bring bytes of its choice
 * into a rank's memory, but it can neither open a socket in this VM nor know the name of one. Therefore a rank that has
 * read a key from a process's memory asks the kernel which process listens at that key's name: it must be that process,
 * and of this user.
 */
#ifndef IVS_IDENTITY_H
#define IVS_IDENTITY_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Opens the door (listening socket) of a slot's owner. Returns its descriptor, or -1: this rank cannot prove its
 * identity.
 */
int ivs_identity_open(const uint8_t *key, uint32_t slot, uint32_t epoch);

/* Empties the door's queue. The ranks in it do not wait for an answer. */
void ivs_identity_clear(int door);

/* Returns the process of this user that listens at the door of this key, slot and epoch, or 0. */
pid_t ivs_identity_owner(const uint8_t *key, uint32_t slot, uint32_t epoch);

#endif /* IVS_IDENTITY_H */
