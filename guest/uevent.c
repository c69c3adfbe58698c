#include "uevent.h"
#include "loop.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

bool uevent_wait(bool (*there)(void *what), void *what, int timeout_ms)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = 1 };
	uint64_t end = now_ns() + timeout_ms * 1000000ull;
	struct pollfd p = { .events = POLLIN };
	bool found = there(what);
	char b[8192];

	if (found)
		return true;
	p.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	if (p.fd >= 0 && bind(p.fd, (struct sockaddr *) &a, sizeof(a))) {
		close(p.fd);
		p.fd = -1;
	}
	/* Checked again, for events before the socket existed. */
	while (!(found = there(what))) {
		uint64_t now = now_ns();
		int left = now >= end ? 0 : (end - now) / 1000000 + 1;

		if (!left)
			break;
		if (p.fd < 0 && left > 10)
			left = 10; /* this kernel has no uevents */
		poll(&p, 1, left);
		while (p.fd >= 0 && recv(p.fd, b, sizeof(b), 0) > 0)
			;
	}
	if (p.fd >= 0)
		close(p.fd);
	return found;
}
