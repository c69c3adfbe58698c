#include "devices.h"
#include "fields.h"
#include "init.h"
#include "log.h"
#include "loop.h"
#include "uevent.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char pci[] = "/sys/bus/pci/devices";

enum {
	SHOWN_MAX = 2 * 64 + 16, /* functions, soft RoCE on each, and RDMAS_MAX of config.c */
	/* Nested VMs probe slowly: igbvf needs 20 s under emulated SVM. */
	DRIVER_TIMEOUT = 90000, /* ms */
	LINK_TIMEOUT =
		10000, /* ms, for a link or a subnet manager to bring a port up, or for IPoIB's interface to appear */
	GID_TIMEOUT = 3000, /* ms, for the kernel to add an address as a GID */
	GIDS_MAX = 256,	    /* of a port */
};

/* The reported properties of a device, "-" for missing ones. An IPoIB interface has an address of 20 bytes. */
struct shown {
	char kind[8], pci[32], driver[32], net[32], mac[64], rdma[32], guid[32], state[16], ip[INET_ADDRSTRLEN];
	char port[4], layer[16], gid[8], node[8], mtu[8], pkey[12];
	uint32_t addr; /* network byte order, 0: none */
};

static struct shown list[SHOWN_MAX];
static size_t nlist;

/* Reads the first line of a file, cut at the first blank if word is set; "-" if there is none. */
static void line_of(char *to, size_t size, bool word, const char *format, const char *a, const char *b)
{
	char path[600];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), format, a, b);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, to, size - 1);
	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = 0;
	to[strcspn(to, word ? " \n" : "\n")] = 0;
	if (!*to)
		strcpy(to, "-");
}

/* Reads the first name in a directory; false if it is empty or does not exist. */
static bool first_in(char *to, size_t size, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d))) {
		if (e->d_name[0] == '.' || strlen(e->d_name) >= size)
			continue;
		strcpy(to, e->d_name);
		found = true;
	}
	if (d)
		closedir(d);
	return found;
}

/* Waits for a state that no kernel event announces; false after timeout ms. */
static bool poll_for(bool (*there)(struct shown *s), struct shown *s, int timeout)
{
	uint64_t end = now_ns() + timeout * 1000000ull;

	while (!there(s)) {
		if (now_ns() >= end)
			return false;
		usleep(20000);
	}
	return true;
}

static bool port_active(struct shown *s)
{
	char state[32];

	/* "4: ACTIVE" */
	line_of(state, sizeof(state), false, "/sys/class/infiniband/%s/%s", s->rdma, "ports/1/state");
	snprintf(s->state, sizeof(s->state), "%.15s", strchr(state, ' ') ? strchr(state, ' ') + 1 : state);
	return !strcmp(s->state, "ACTIVE");
}

static bool link_up(struct shown *s)
{
	line_of(s->state, sizeof(s->state), true, "/sys/class/net/%s/%s", s->net, "operstate");
	return strcmp(s->state, "down") && strcmp(s->state, "dormant") && strcmp(s->state, "lowerlayerdown");
}

static bool has_net(struct shown *s)
{
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/%s/net", pci, s->pci);
	return first_in(s->net, sizeof(s->net), dir);
}

/* Finds the GID of RoCE v2 that is derived from the address. */
static bool roce_gid(struct shown *s)
{
	char want[48], file[64], text[48];
	const uint8_t *a = (const uint8_t *) &s->addr;

	snprintf(want, sizeof(want), "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a[0], a[1], a[2], a[3]);
	for (unsigned i = 0; i < GIDS_MAX; i++) {
		snprintf(file, sizeof(file), "ports/1/gids/%u", i);
		line_of(text, sizeof(text), true, "/sys/class/infiniband/%s/%s", s->rdma, file);
		if (strcmp(text, want))
			continue;
		snprintf(file, sizeof(file), "ports/1/gid_attrs/types/%u", i);
		line_of(text, sizeof(text), false, "/sys/class/infiniband/%s/%s", s->rdma, file);
		if (!strcmp(text, "RoCE v2")) {
			snprintf(s->gid, sizeof(s->gid), "%u", i);
			return true;
		}
	}
	return false;
}

/*
 * Fills in the properties of the RDMA device s->rdma, once its interface has its address. Its first port is used,
 * because a VF has no other.
 */
static void describe_rdma(struct shown *s)
{
	strcpy(s->port, "1");
	line_of(s->guid, sizeof(s->guid), true, "/sys/class/infiniband/%s/%s", s->rdma, "node_guid");
	line_of(s->layer, sizeof(s->layer), true, "/sys/class/infiniband/%s/%s", s->rdma, "ports/1/link_layer");
	poll_for(port_active, s, LINK_TIMEOUT);
	if (!strcmp(s->layer, "InfiniBand"))
		line_of(s->pkey, sizeof(s->pkey), true, "/sys/class/infiniband/%s/%s", s->rdma, "ports/1/pkeys/0");
	else if (s->addr)
		poll_for(roce_gid, s, GID_TIMEOUT);
}

/* Fills in the properties of the network interface s->net. */
static void describe_net(struct shown *s)
{
	line_of(s->mac, sizeof(s->mac), true, "/sys/class/net/%s/%s", s->net, "address");
	line_of(s->mtu, sizeof(s->mtu), true, "/sys/class/net/%s/%s", s->net, "mtu");
	if (s->addr)
		inet_ntop(AF_INET, &s->addr, s->ip, sizeof(s->ip));
}

static struct shown *add(const char *kind)
{
	struct shown *s;

	if (nlist == SHOWN_MAX)
		die("more devices than %d", SHOWN_MAX);
	s = &list[nlist++];
	*s = (struct shown) { .pci = "-",
			      .driver = "-",
			      .net = "-",
			      .mac = "-",
			      .rdma = "-",
			      .guid = "-",
			      .state = "-",
			      .ip = "-",
			      .port = "-",
			      .layer = "-",
			      .gid = "-",
			      .node = "-",
			      .mtu = "-",
			      .pkey = "-" };
	snprintf(s->kind, sizeof(s->kind), "%s", kind);
	return s;
}

/*
 * Creates soft RoCE, an RDMA device called name, on a network interface of the VM with an address (network byte
 * order).
 */
static void soft_roce(const char *name, const char *net, uint32_t addr)
{
	struct shown *s = add("rxe");
	int err = rdma_add_link(name, "rxe", net);

	if (err)
		die("%s: no soft RoCE on %s: %s", name, net, strerror(err));
	snprintf(s->rdma, sizeof(s->rdma), "%s", name);
	snprintf(s->net, sizeof(s->net), "%s", net);
	strcpy(s->driver, "rdma_rxe");
	line_of(s->node, sizeof(s->node), true, "/sys/class/net/%s/%s", net, "device/numa_node");
	s->addr = addr;
	describe_net(s);
	describe_rdma(s);
}

/* Returns the address of a link, 0 if the name is not a link. */
static uint32_t link_address(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->nlinks; i++)
		if (!strcmp(c->links[i].name, name))
			return c->links[i].addr;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Finds the PCI address of the nth function (from 0) with a vendor and device; false if there are fewer. */
static bool nth_function(char *to, unsigned vendor, unsigned device, unsigned nth)
{
	static char names[512][32];
	size_t n = 0;
	DIR *d = opendir(pci);
	struct dirent *e;

	while (d && n < sizeof(names) / sizeof(*names) && (e = readdir(d))) {
		char v[16], w[16];

		if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof(names[0]))
			continue;
		line_of(v, sizeof(v), true, "/sys/bus/pci/devices/%s/%s", e->d_name, "vendor");
		line_of(w, sizeof(w), true, "/sys/bus/pci/devices/%s/%s", e->d_name, "device");
		if (strtoul(v, NULL, 16) == vendor && strtoul(w, NULL, 16) == device)
			strcpy(names[n++], e->d_name);
	}
	if (d)
		closedir(d);
	qsort(names, n, sizeof(names[0]), by_name);
	if (nth >= n)
		return false;
	strcpy(to, names[nth]);
	return true;
}

/* A function whose driver is awaited. */
struct wanted {
	const struct function_config *f;
	struct shown *s;
};

static bool there(void *what)
{
	struct wanted *w = what;
	char dir[128];

	if (w->f->net && !has_net(w->s))
		return false;
	snprintf(dir, sizeof(dir), "%s/%s/infiniband", pci, w->s->pci);
	return !w->f->rdma || first_in(w->s->rdma, sizeof(w->s->rdma), dir);
}

/* Sets up a function that was passed through: its driver, link and address. */
static void function_up(const struct function_config *f, unsigned nth)
{
	struct wanted w = { f, add("pci") };
	struct shown *s = w.s;
	char link[160], target[256];
	ssize_t n;

	if (!nth_function(s->pci, f->vendor, f->device, nth))
		die("device %04x:%04x: the VM does not see it on its PCI bus", f->vendor, f->device);
	if (!uevent_wait(there, &w, DRIVER_TIMEOUT))
		die("device %s (%04x:%04x): its driver made no %s within %d s", s->pci, f->vendor, f->device,
		    f->net && !strcmp(s->net, "-") ? "network interface"
						   : "RDMA device (take a kernel whose driver does, or --allow-tcp)",
		    DRIVER_TIMEOUT / 1000);
	snprintf(link, sizeof(link), "%s/%s/driver", pci, s->pci);
	n = readlink(link, target, sizeof(target) - 1);
	if (n > 0) {
		target[n] = 0;
		snprintf(s->driver, sizeof(s->driver), "%.31s",
			 strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	}
	line_of(s->node, sizeof(s->node), true, "/sys/bus/pci/devices/%s/%s", s->pci, "numa_node");
	if (f->ipoib)
		poll_for(has_net, s, LINK_TIMEOUT);
	if (strcmp(s->net, "-")) {
		s->addr = f->addr;
		net_address(s->net, f->mtu, f->addr, f->mask);
		describe_net(s);
		/* An IPoIB interface is up only once its port is, which is awaited next. */
		if (!f->ipoib)
			poll_for(link_up, s, LINK_TIMEOUT);
	}
	/* An RDMA device that is not awaited is reported if it exists by now. */
	if (!f->rdma && !f->soft) {
		snprintf(link, sizeof(link), "%s/%s/infiniband", pci, s->pci);
		first_in(s->rdma, sizeof(s->rdma), link);
	}
	if (strcmp(s->rdma, "-"))
		describe_rdma(s);
}

/* Formats the line of a device, see devices_add(). */
static void print(char *to, size_t size, const struct shown *s)
{
	snprintf(to, size, "%s %s %s %s %s %s %s %s %s %s %s %s %s %s %s", s->kind, s->pci, s->driver, s->net, s->mac,
		 s->rdma, s->guid, s->state, s->ip, s->port, s->layer, s->gid, s->node, s->mtu, s->pkey);
}

void devices_up(const struct config *c)
{
	size_t nsoft = 0;
	FILE *f;

	for (size_t i = 0; i < c->nfunctions; i++) {
		unsigned nth = 0;

		for (size_t j = 0; j < i; j++)
			nth += c->functions[j].vendor == c->functions[i].vendor &&
			       c->functions[j].device == c->functions[i].device;
		function_up(&c->functions[i], nth);
	}
	/* The functions come first in the list: the ith function is the ith device. */
	for (size_t i = 0; i < c->nfunctions; i++) {
		char name[16];

		if (!c->functions[i].soft)
			continue;
		snprintf(name, sizeof(name), "rxe%zu", c->nrdmas + nsoft++);
		soft_roce(name, list[i].net, list[i].addr);
	}
	for (size_t i = 0; i < c->nrdmas; i++)
		soft_roce(c->rdmas[i].name, c->rdmas[i].net, link_address(c, c->rdmas[i].net));
	if (!nlist)
		return;
	f = fopen("/run/nearmetal/devices", "we");
	if (!f)
		die("/run/nearmetal/devices: %s", strerror(errno));
	for (size_t i = 0; i < nlist; i++) {
		char line[420];

		print(line, sizeof(line), &list[i]);
		fprintf(f, "%s\n", line);
	}
	fclose(f);
}

void devices_add(struct buf *b)
{
	for (size_t i = 0; i < nlist; i++) {
		char line[420];

		print(line, sizeof(line), &list[i]);
		fields_add(b, "device", line);
	}
}
