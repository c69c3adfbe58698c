#include "devices.h"

#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A netlink message that grows by attributes. */
struct message {
	struct nlmsghdr h;
	char room[256];
};

static void put_string(struct message *m, uint16_t type, const char *s)
{
	struct nlattr *a = (void *) ((char *) m + NLMSG_ALIGN(m->h.nlmsg_len));
	size_t n = strlen(s) + 1;

	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + n;
	memcpy((char *) a + NLA_HDRLEN, s, n);
	m->h.nlmsg_len = NLMSG_ALIGN(m->h.nlmsg_len) + NLA_ALIGN(a->nla_len);
}

/* Sends the request of `rdma link add` (rdma(8), RDMA_NLDEV_CMD_NEWLINK of rdma_netlink.h). */
int rdma_add_link(const char *name, const char *type, const char *net)
{
	struct message m = { .h = {
				     .nlmsg_len = NLMSG_HDRLEN,
				     .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK),
				     .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
			     } };
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} answer;
	int fd, err = 0;
	ssize_t n;

	if (strlen(name) + strlen(type) + strlen(net) > 128)
		return ENAMETOOLONG;
	put_string(&m, RDMA_NLDEV_ATTR_DEV_NAME, name);
	put_string(&m, RDMA_NLDEV_ATTR_LINK_TYPE, type);
	put_string(&m, RDMA_NLDEV_ATTR_NDEV_NAME, net);
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (fd < 0)
		return errno;
	if (send(fd, &m, m.h.nlmsg_len, 0) < 0) {
		err = errno;
	} else {
		n = recv(fd, &answer, sizeof(answer), 0);
		if (n < 0)
			err = errno;
		else if ((size_t) n < sizeof(answer.h) + sizeof(answer.e) || answer.h.nlmsg_type != NLMSG_ERROR)
			err = EPROTO;
		else
			err = -answer.e.error;
	}
	close(fd);
	return err;
}
