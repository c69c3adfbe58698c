#define _GNU_SOURCE
#include "devices.h"
#include "fields.h"
#include "init.h"
#include "log.h"
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
	SHOWN_MAX = 64 + 16,	/* FUNCTIONS_MAX + RDMAS_MAX of config.c */
	/* Nested VMs probe slowly: igbvf takes 20 s under emulated SVM. */
	DRIVER_TIMEOUT = 90000,	/* ms */
};

/* What is told of a device, "-" for what it has not. */
struct shown {
	char kind[8], pci[32], driver[32], net[32], mac[32], rdma[32], guid[32], state[16], ip[INET_ADDRSTRLEN];
};

static struct shown list[SHOWN_MAX];
static size_t nlist;

/* The first line of a file, cut at the first blank if word is set; "-" if there is none. */
static void line_of(char *to, size_t size, bool word, const char *format, const char *a, const char *b)
{
	char path[600];
	int fd;
	ssize_t n;

	snprintf(path, sizeof path, format, a, b);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, to, size - 1);
	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = 0;
	to[strcspn(to, word ? " \n" : "\n")] = 0;
	if (!*to)
		strcpy(to, "-");
}

/* The first name in a directory; false if it is empty or not there. */
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

/* Fills in what the RDMA device s->rdma says of itself. */
static void describe_rdma(struct shown *s)
{
	char state[32];

	line_of(s->guid, sizeof s->guid, true, "/sys/class/infiniband/%s/%s", s->rdma, "node_guid");
	/* "4: ACTIVE" */
	line_of(state, sizeof state, false, "/sys/class/infiniband/%s/%s", s->rdma, "ports/1/state");
	snprintf(s->state, sizeof s->state, "%.15s", strchr(state, ' ') ? strchr(state, ' ') + 1 : state);
}

static struct shown *add(const char *kind)
{
	struct shown *s;

	if (nlist == SHOWN_MAX)
		die("more devices than %d", SHOWN_MAX);
	s = &list[nlist++];
	*s = (struct shown){.pci = "-", .driver = "-", .net = "-", .mac = "-", .rdma = "-",
			    .guid = "-", .state = "-", .ip = "-"};
	snprintf(s->kind, sizeof s->kind, "%s", kind);
	return s;
}

/* Soft RoCE on a network interface of the VM's. */
static void soft_roce(const struct config *c, const struct rdma_config *r)
{
	struct shown *s = add("rxe");
	int err = rdma_add_link(r->name, "rxe", r->net);

	if (err)
		die("%s: no soft RoCE on %s: %s", r->name, r->net, strerror(err));
	snprintf(s->rdma, sizeof s->rdma, "%s", r->name);
	snprintf(s->net, sizeof s->net, "%s", r->net);
	strcpy(s->driver, "rdma_rxe");
	describe_rdma(s);
	line_of(s->mac, sizeof s->mac, true, "/sys/class/net/%s/%s", r->net, "address");
	for (size_t i = 0; i < c->nlinks; i++)
		if (!strcmp(c->links[i].name, r->net))
			inet_ntop(AF_INET, &c->links[i].addr, s->ip, sizeof s->ip);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The address of the nth function (from 0) with a vendor and device; false if there are fewer. */
static bool nth_function(char *to, unsigned vendor, unsigned device, unsigned nth)
{
	static char names[512][32];
	size_t n = 0;
	DIR *d = opendir(pci);
	struct dirent *e;

	while (d && n < sizeof names / sizeof *names && (e = readdir(d))) {
		char v[16], w[16];

		if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof names[0])
			continue;
		line_of(v, sizeof v, true, "/sys/bus/pci/devices/%s/%s", e->d_name, "vendor");
		line_of(w, sizeof w, true, "/sys/bus/pci/devices/%s/%s", e->d_name, "device");
		if (strtoul(v, NULL, 16) == vendor && strtoul(w, NULL, 16) == device)
			strcpy(names[n++], e->d_name);
	}
	if (d)
		closedir(d);
	qsort(names, n, sizeof names[0], by_name);
	if (nth >= n)
		return false;
	strcpy(to, names[nth]);
	return true;
}

/* A function whose driver is waited for. */
struct wanted {
	const struct function_config *f;
	struct shown *s;
};

static bool there(void *what)
{
	struct wanted *w = what;
	char dir[128];

	snprintf(dir, sizeof dir, "%s/%s/net", pci, w->s->pci);
	if (w->f->net && !first_in(w->s->net, sizeof w->s->net, dir))
		return false;
	snprintf(dir, sizeof dir, "%s/%s/infiniband", pci, w->s->pci);
	return !w->f->rdma || first_in(w->s->rdma, sizeof w->s->rdma, dir);
}

/* Gives a function that was passed through its driver, link and address. */
static void function_up(const struct function_config *f, unsigned nth)
{
	struct wanted w = {f, add("pci")};
	struct shown *s = w.s;
	char link[160], target[256];
	ssize_t n;

	if (!nth_function(s->pci, f->vendor, f->device, nth))
		die("device %04x:%04x: the VM does not see it on its PCI bus", f->vendor, f->device);
	if (!uevent_wait(there, &w, DRIVER_TIMEOUT))
		die("device %s (%04x:%04x): its driver made no %s within %d s", s->pci, f->vendor, f->device,
		    f->net && !strcmp(s->net, "-") ? "network interface" : "RDMA device", DRIVER_TIMEOUT / 1000);
	snprintf(link, sizeof link, "%s/%s/driver", pci, s->pci);
	n = readlink(link, target, sizeof target - 1);
	if (n > 0) {
		target[n] = 0;
		snprintf(s->driver, sizeof s->driver, "%.31s", strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	}
	if (strcmp(s->net, "-")) {
		net_address(s->net, f->addr, f->mask);
		line_of(s->mac, sizeof s->mac, true, "/sys/class/net/%s/%s", s->net, "address");
		line_of(s->state, sizeof s->state, true, "/sys/class/net/%s/%s", s->net, "operstate");
		if (f->addr)
			inet_ntop(AF_INET, &f->addr, s->ip, sizeof s->ip);
	}
	if (strcmp(s->rdma, "-"))
		describe_rdma(s);
}

/* The line of a device: kind, PCI address, driver, interface, MAC, RDMA name, GUID, state, IP. */
static void print(char *to, size_t size, const struct shown *s)
{
	snprintf(to, size, "%s %s %s %s %s %s %s %s %s", s->kind, s->pci, s->driver, s->net, s->mac,
		 s->rdma, s->guid, s->state, s->ip);
}

void devices_up(const struct config *c)
{
	FILE *f;

	for (size_t i = 0; i < c->nfunctions; i++) {
		unsigned nth = 0;

		for (size_t j = 0; j < i; j++)
			nth += c->functions[j].vendor == c->functions[i].vendor &&
			       c->functions[j].device == c->functions[i].device;
		function_up(&c->functions[i], nth);
	}
	for (size_t i = 0; i < c->nrdmas; i++)
		soft_roce(c, &c->rdmas[i]);
	if (!nlist)
		return;
	f = fopen("/run/nearmetal/devices", "we");
	if (!f)
		die("/run/nearmetal/devices: %s", strerror(errno));
	for (size_t i = 0; i < nlist; i++) {
		char line[300];

		print(line, sizeof line, &list[i]);
		fprintf(f, "%s\n", line);
	}
	fclose(f);
}

void devices_add(struct buf *b)
{
	for (size_t i = 0; i < nlist; i++) {
		char line[300];

		print(line, sizeof line, &list[i]);
		fields_add(b, "device", line);
	}
}
