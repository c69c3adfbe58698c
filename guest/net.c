#include "init.h"
#include "log.h"
#include "uevent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int sock;

static struct ifreq request(const char *name)
{
	struct ifreq r = { 0 };

	strncpy(r.ifr_name, name, IFNAMSIZ - 1);
	return r;
}

struct nic {
	const uint8_t *mac;
	char name[IFNAMSIZ];
};

/* Finds an interface by its MAC address. */
static bool find(void *what)
{
	struct nic *n = what;

	/* The kernel numbers interfaces from 1 (lo). */
	for (int i = 1; i < 64; i++) {
		struct ifreq r = { .ifr_ifindex = i };

		if (ioctl(sock, SIOCGIFNAME, &r) || ioctl(sock, SIOCGIFHWADDR, &r))
			continue;
		if (r.ifr_hwaddr.sa_family == ARPHRD_ETHER && !memcmp(r.ifr_hwaddr.sa_data, n->mac, 6)) {
			memcpy(n->name, r.ifr_name, IFNAMSIZ);
			return true;
		}
	}
	return false;
}

static void set_addr(struct sockaddr *a, uint32_t addr)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = addr };

	memcpy(a, &v4, sizeof(v4));
}

static void up(const char *name)
{
	struct ifreq r = request(name);

	if (ioctl(sock, SIOCGIFFLAGS, &r))
		die("%s: %s", name, strerror(errno));
	r.ifr_flags |= IFF_UP;
	if (ioctl(sock, SIOCSIFFLAGS, &r))
		die("%s: cannot be brought up: %s", name, strerror(errno));
}

/* Renames an interface; another one that has the name gets the old name. */
static void rename_to(const char *from, const char *to)
{
	struct ifreq r = request(from), away = request(to);

	strcpy(away.ifr_newname, "nm-swap");
	if (ioctl(sock, SIOCSIFNAME, &away) && errno != ENODEV)
		die("%s: cannot be renamed: %s", to, strerror(errno));
	strcpy(r.ifr_newname, to);
	if (ioctl(sock, SIOCSIFNAME, &r))
		die("%s: cannot be renamed to %s: %s", from, to, strerror(errno));
	away = request("nm-swap");
	strcpy(away.ifr_newname, from);
	ioctl(sock, SIOCSIFNAME, &away);
}

static void give(const char *name, uint32_t addr, uint32_t mask)
{
	struct ifreq r = request(name);

	set_addr(&r.ifr_addr, addr);
	if (ioctl(sock, SIOCSIFADDR, &r))
		die("%s: cannot be given its address: %s", name, strerror(errno));
	set_addr(&r.ifr_netmask, mask);
	if (ioctl(sock, SIOCSIFNETMASK, &r))
		die("%s: cannot be given its netmask: %s", name, strerror(errno));
}

static void configure(const struct link_config *l)
{
	struct nic n = { .mac = l->mac };
	struct ifreq r = request(l->name);

	if (!uevent_wait(find, &n, 10000))
		die("%s: no network interface has the address %02x:%02x:%02x:%02x:%02x:%02x; is its driver in the "
		    "initramfs?",
		    l->name, l->mac[0], l->mac[1], l->mac[2], l->mac[3], l->mac[4], l->mac[5]);
	if (strcmp(n.name, l->name))
		rename_to(n.name, l->name);
	r.ifr_mtu = l->mtu;
	if (l->mtu && ioctl(sock, SIOCSIFMTU, &r))
		die("%s: MTU %u: %s", l->name, l->mtu, strerror(errno));
	give(l->name, l->addr, l->mask);
	up(l->name);
	if (l->gateway) {
		struct rtentry t = { .rt_flags = RTF_UP | RTF_GATEWAY, .rt_dev = (char *) l->name };

		set_addr(&t.rt_dst, 0);
		set_addr(&t.rt_genmask, 0);
		set_addr(&t.rt_gateway, l->gateway);
		if (ioctl(sock, SIOCADDRT, &t) && errno != EEXIST)
			die("%s: no route by its gateway: %s", l->name, strerror(errno));
	}
}

static void open_sock(void)
{
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		die("no IPv4: %s", strerror(errno));
}

/*
 * Makes each of several interfaces in one subnet answer ARP only for its own address, and send requests from it.
 * Otherwise a message for one device would arrive at another.
 */
static void own_arp(const char *name)
{
	static const char *const keys[][2] = { { "arp_ignore", "1" }, { "arp_announce", "2" } };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		char path[96];
		int fd;

		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/%s", name, keys[i][0]);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, keys[i][1], 1) != 1)
			say("%s: %s: %s", name, keys[i][0], strerror(errno));
		if (fd >= 0)
			close(fd);
	}
}

void net_address(const char *name, unsigned mtu, uint32_t addr, uint32_t mask)
{
	struct ifreq r = request(name);

	open_sock();
	r.ifr_mtu = mtu;
	if (mtu && ioctl(sock, SIOCSIFMTU, &r))
		die("%s: network.deviceMTU %u: %s; the card's physical function and its switch port have to have it "
		    "too",
		    name, mtu, strerror(errno));
	r = request(name);
	if (mtu && (ioctl(sock, SIOCGIFMTU, &r) || r.ifr_mtu != (int) mtu))
		die("%s: network.deviceMTU %u: it has %d", name, mtu, r.ifr_mtu);
	if (addr) {
		own_arp(name);
		give(name, addr, mask);
	}
	up(name);
	close(sock);
}

void net_up(const struct config *c)
{
	open_sock();
	up("lo");
	for (size_t i = 0; i < c->nlinks; i++)
		configure(&c->links[i]);
	close(sock);
}
