/* The VM's boot, from the initramfs to a root in which programs can run. */
#ifndef NM_INIT_H
#define NM_INIT_H

#include "buf.h"
#include "config.h"

/* Boots; the configuration stays in *c. Dies with a line on the console and on the channel. */
void init_boot(struct config *c);
/* Opens the channel and sends HELLO; returns the descriptor. */
int init_hello(void);
/* Powers the VM off, after writing back the shares if sync is set. */
void power_off(bool sync) __attribute__((noreturn));

/* Records that a phase of the boot is complete. */
void phase(const char *name);
/* Adds the recorded phases to fields. */
void add_phases(struct buf *b);

/* Sets the limits with which an agent's children start. */
void limits(void);

/* The parts, each in its file. */
void modules_load(const char *list);
void net_up(const struct config *c);
/* Sets an interface's MTU (bytes; 0: unchanged) and an address (network byte order; 0: none), and brings it up. */
void net_address(const char *name, unsigned mtu, uint32_t addr, uint32_t mask);
void hosts_write(const struct config *c, const char *old, const char *file);
void region_show(const struct config *c);
int port_open(const char *name, int timeout_ms); /* -1 if there is none */

#endif
