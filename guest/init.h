/* The VM's boot, from the initramfs to a root that programs can run in. */
#ifndef NM_INIT_H
#define NM_INIT_H

#include "buf.h"
#include "config.h"

/* Boots; the configuration stays in *c. Dies with a line on the console and on the channel. */
void init_boot(struct config *c);
/* Opens the channel and says HELLO; the descriptor. */
int init_hello(void);
/* Powers the VM off, after the shares were written back if sync is set. */
void power_off(bool sync) __attribute__((noreturn));

/* Notes that a phase of the boot is over. */
void phase(const char *name);
/* Adds the phases noted to fields. */
void add_phases(struct buf *b);

/* Sets what the children of an agent start with. */
void limits(void);

/* The parts, each in its file. */
void modules_load(const char *list);
void net_up(const struct config *c);
/* Sets an interface's MTU (bytes; 0: as it is) and an address (network byte order; 0: none), and brings it up. */
void net_address(const char *name, unsigned mtu, uint32_t addr, uint32_t mask);
void hosts_write(const struct config *c, const char *old, const char *file);
void region_show(const struct config *c);
int port_open(const char *name, int timeout_ms); /* -1 if there is none */

#endif
