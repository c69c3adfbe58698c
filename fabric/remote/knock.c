#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/core_ep.h"
#include "remote/knock.h"

/* Sets *to to the peer's listening socket. Returns its length, or 0 if its address is not a socket's. */
static socklen_t listener(const struct ivs_peer *peer, struct sockaddr_storage *to)
{
	const struct core_ep *ce = peer->ep->core;
	socklen_t len;

	if (!ce || strncmp(ce->core->info->fabric_attr->prov_name, "tcp", 3) || peer->addr.core_len > sizeof(*to))
		return 0;
	memset(to, 0, sizeof(*to));
	memcpy(to, peer->addr.core, peer->addr.core_len);
	len = to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if ((to->ss_family != AF_INET && to->ss_family != AF_INET6) || peer->addr.core_len < len)
		return 0;
	return len;
}

bool ivs_knock(struct ivs_peer *peer)
{
	struct sockaddr_storage to;
	struct pollfd p;
	int error = 0;
	socklen_t len;

	if (peer->core.knock < 0) {
		len = listener(peer, &to);
		if (len)
			peer->core.knock = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (peer->core.knock < 0)
			return false;
		if (connect(peer->core.knock, (struct sockaddr *) &to, len))
			error = errno;
		if (error == EINPROGRESS)
			return false;
	} else {
		p = (struct pollfd) { .fd = peer->core.knock, .events = POLLOUT };
		if (poll(&p, 1, 0) != 1)
			return false;
		len = sizeof(error);
		if (getsockopt(peer->core.knock, SOL_SOCKET, SO_ERROR, &error, &len))
			error = 0;
	}
	ivs_knock_end(peer);
	return error == ECONNREFUSED;
}

void ivs_knock_end(struct ivs_peer *peer)
{
	if (peer->core.knock >= 0)
		close(peer->core.knock);
	peer->core.knock = -1;
}
