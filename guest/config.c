#include "config.h"
#include "buf.h"
#include "fields.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 32, SHARES_MAX = 256, LINKS_MAX = 16, HOSTS_MAX = 8192, RDMAS_MAX = 16, FUNCTIONS_MAX = 64 };

static bool name_valid(const char *s, size_t size)
{
	if (!*s || strlen(s) >= size)
		return false;
	for (const char *p = s; *p; p++) {
		bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');

		if (!alnum && (p == s || !strchr("._-", *p)))
			return false;
	}
	return true;
}

static bool take_name(char *to, size_t size, const char *s)
{
	if (!name_valid(s, size))
		return false;
	strcpy(to, s);
	return true;
}

/* An absolute path without empty, "." and ".." components. */
static bool target_valid(const char *s)
{
	if (*s != '/' || !s[1] || strlen(s) > 4000)
		return false;
	while (*s) {
		size_t n = strcspn(++s, "/");

		if (!n || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
			return false;
		s += n;
	}
	return true;
}

/* Makes room for one more element of a growing array. */
static void *grow(void *p, size_t n, size_t size)
{
	if (n & (n + 1))
		return p; /* has room for 1, 3, 7, 15 … elements */
	p = realloc(p, (2 * n + 1) * size);
	if (!p)
		abort();
	return p;
}

static bool take_mount(struct mount_config *m, const char *tag, const char *msize)
{
	uint64_t n;

	if (!take_name(m->tag, sizeof(m->tag), tag))
		return false;
	m->msize = 0;
	if (!strcmp(msize, "virtiofs"))
		return true;
	if (!parse_number(msize, 1 << 24, &n) || n < 4096)
		return false;
	m->msize = n;
	return true;
}

static bool take_mac(uint8_t *mac, const char *s)
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 6; i++, s += 3) {
		const char *a = *s ? strchr(digits, s[0]) : NULL;
		const char *b = a && s[1] ? strchr(digits, s[1]) : NULL;

		if (!b || s[2] != (i < 5 ? ':' : 0))
			return false;
		mac[i] = (a - digits) << 4 | (b - digits);
	}
	return true;
}

/* Parses ADDRESS/LENGTH, which it changes, into network byte order. */
static bool take_prefix(uint32_t *addr, uint32_t *mask, char *s)
{
	char *slash = strchr(s, '/');
	uint64_t n;

	if (!slash)
		return false;
	*slash = 0;
	if (inet_pton(AF_INET, s, addr) != 1 || !parse_number(slash + 1, 32, &n))
		return false;
	*mask = n ? htonl(~0u << (32 - n)) : 0;
	return true;
}

static bool take_link(struct config *c, char **w)
{
	struct link_config l = { 0 };
	uint64_t n;

	if (c->nlinks == LINKS_MAX || !take_name(l.name, sizeof(l.name), w[0]) || !take_mac(l.mac, w[1]) ||
	    !take_prefix(&l.addr, &l.mask, w[2]))
		return false;
	if (!parse_number(w[3], 65535, &n) || (n && n < 576))
		return false;
	l.mtu = n;
	if (strcmp(w[4], "-") && inet_pton(AF_INET, w[4], &l.gateway) != 1)
		return false;
	c->links = grow(c->links, c->nlinks, sizeof(*c->links));
	c->links[c->nlinks++] = l;
	return true;
}

static bool take_host(struct config *c, char *line)
{
	char copy[1024], *save = NULL, *w;
	uint8_t addr[16];
	int names = 0;

	if (c->nhosts == HOSTS_MAX || strlen(line) >= sizeof(copy))
		return false;
	strcpy(copy, line);
	w = strtok_r(copy, " ", &save);
	if (!w || (inet_pton(AF_INET, w, addr) != 1 && inet_pton(AF_INET6, w, addr) != 1))
		return false;
	while ((w = strtok_r(NULL, " ", &save))) {
		if (!name_valid(w, NAME_SIZE))
			return false;
		names++;
	}
	if (!names)
		return false;
	c->hosts = grow(c->hosts, c->nhosts, sizeof(*c->hosts));
	c->hosts[c->nhosts++] = line;
	return true;
}

static bool take_region(struct config *c, char **w)
{
	uint64_t size, uid, gid;

	if (strcmp(w[0], "ivshmem") && strcmp(w[0], "devdax"))
		return false;
	if (!parse_number(w[1], INT64_MAX, &size) || !parse_number(w[2], UINT32_MAX - 1, &uid) ||
	    !parse_number(w[3], UINT32_MAX - 1, &gid))
		return false;
	strcpy(c->region_kind, w[0]);
	c->region = true;
	c->region_size = size;
	c->region_uid = uid;
	c->region_gid = gid;
	return true;
}

static bool take_rdma(struct config *c, char **w)
{
	struct rdma_config r = { 0 };

	if (c->nrdmas == RDMAS_MAX || !take_name(r.name, sizeof(r.name), w[0]) ||
	    !take_name(r.net, sizeof(r.net), w[1]))
		return false;
	c->rdmas = grow(c->rdmas, c->nrdmas, sizeof(*c->rdmas));
	c->rdmas[c->nrdmas++] = r;
	return true;
}

/* Parses four lower-case hexadecimal digits. */
static bool take_id(unsigned *to, const char *s)
{
	if (strlen(s) != 4 || strspn(s, "0123456789abcdef") != 4)
		return false;
	*to = strtoul(s, NULL, 16);
	return true;
}

static bool take_function(struct config *c, char **w)
{
	struct function_config f = { 0 };
	uint64_t mtu;

	if (c->nfunctions == FUNCTIONS_MAX || !take_id(&f.vendor, w[0]) || !take_id(&f.device, w[1]) ||
	    (strcmp(w[2], "-") && !take_prefix(&f.addr, &f.mask, w[2])))
		return false;
	f.soft = !strcmp(w[3], "soft");
	f.net = f.soft || !strcmp(w[3], "net") || !strcmp(w[3], "both");
	f.ipoib = !strcmp(w[3], "ipoib");
	f.rdma = f.ipoib || !strcmp(w[3], "rdma") || !strcmp(w[3], "both");
	if ((!f.net && !f.rdma && strcmp(w[3], "none")) || !parse_number(w[4], 65535, &mtu) || (mtu && mtu < 576))
		return false;
	f.mtu = mtu;
	c->functions = grow(c->functions, c->nfunctions, sizeof(*c->functions));
	c->functions[c->nfunctions++] = f;
	return true;
}

/* Splits at single spaces into at most max words; the last one is the rest. */
static int split(char *s, char **w, int max)
{
	int n = 0;

	for (;;) {
		w[n++] = s;
		s = n < max ? strchr(s, ' ') : NULL;
		if (!s)
			return n;
		*s++ = 0;
	}
}

static bool take_share(struct config *c, char *rest)
{
	struct mount_config m = { 0 };
	char *w[4];

	if (c->nshares == SHARES_MAX || split(rest, w, 4) != 4 || !take_mount(&m, w[0], w[1]) ||
	    (strcmp(w[2], "ro") && strcmp(w[2], "rw")) || !target_valid(w[3]))
		return false;
	m.read_only = w[2][1] == 'o';
	m.target = w[3];
	c->shares = grow(c->shares, c->nshares, sizeof(*c->shares));
	c->shares[c->nshares++] = m;
	return true;
}

static bool take_peer(struct config *c, const char *name)
{
	if (c->npeers == HOSTS_MAX || !name_valid(name, NAME_SIZE))
		return false;
	c->peers = grow(c->peers, c->npeers, sizeof(*c->peers));
	c->peers[c->npeers++] = name;
	return true;
}

static bool take_line(struct config *c, const char *key, char *rest)
{
	char *w[6];
	uint64_t n;

	if (!strcmp(key, "version"))
		return !strcmp(rest, "1");
	if (!strcmp(key, "name"))
		return take_name(c->name, sizeof(c->name), rest);
	if (!strcmp(key, "hostname"))
		return take_name(c->host_name, sizeof(c->host_name), rest);
	if (!strcmp(key, "peer"))
		return take_peer(c, rest);
	if (!strcmp(key, "index")) {
		bool ok = parse_number(rest, 1 << 20, &n);

		c->index = n;
		return ok;
	}
	if (!strcmp(key, "ownroot"))
		return !strcmp(rest, "yes") && (c->own_root = true);
	if (!strcmp(key, "root"))
		return split(rest, w, 2) == 2 && take_mount(&c->root, w[0], w[1]);
	if (!strcmp(key, "inodes"))
		return parse_number(rest, INT64_MAX, &c->max_inodes) && c->max_inodes;
	if (!strcmp(key, "share"))
		return take_share(c, rest);
	if (!strcmp(key, "link"))
		return split(rest, w, 5) == 5 && take_link(c, w);
	if (!strcmp(key, "host"))
		return take_host(c, rest);
	if (!strcmp(key, "region"))
		return split(rest, w, 4) == 4 && take_region(c, w);
	if (!strcmp(key, "rdma"))
		return split(rest, w, 2) == 2 && take_rdma(c, w);
	if (!strcmp(key, "function"))
		return split(rest, w, 5) == 5 && take_function(c, w);
	return false;
}

bool config_parse(struct config *c, char *text, size_t n, char *why, size_t why_size)
{
	int number = 0;

	*c = (struct config) { 0 };
	if (memchr(text, 0, n)) {
		snprintf(why, why_size, "a NUL byte");
		return false;
	}
	while (n) {
		char *end = memchr(text, '\n', n), *space;

		number++;
		if (!end) {
			snprintf(why, why_size, "line %d has no end", number);
			return false;
		}
		*end = 0;
		space = strchr(text, ' ');
		if (!space) {
			snprintf(why, why_size, "line %d: \"%.40s\" has no value", number, text);
			return false;
		}
		*space = 0;
		if ((number == 1) != !strcmp(text, "version") || !take_line(c, text, space + 1)) {
			snprintf(why, why_size, "line %d: a wrong \"%.40s\"", number, text);
			return false;
		}
		n -= end + 1 - text;
		text = end + 1;
	}
	if (!*c->name || (!*c->root.tag && !c->own_root)) {
		snprintf(why, why_size, "no %s", *c->name ? "root" : "name");
		return false;
	}
	return true;
}

void config_free(struct config *c)
{
	free(c->shares);
	free(c->links);
	free(c->hosts);
	free(c->peers);
	free(c->rdmas);
	free(c->functions);
	*c = (struct config) { 0 };
}

/* Returns a mount's kind in text: "virtiofs", or 9p's maximum message size. */
static const char *how(const struct mount_config *m, char text[16])
{
	if (!m->msize)
		return "virtiofs";
	snprintf(text, 16, "%u", m->msize);
	return text;
}

void config_print(const struct config *c)
{
	char addr[INET_ADDRSTRLEN], gateway[INET_ADDRSTRLEN], msize[16];

	printf("version 1\nname %s\nindex %u\n", c->name, c->index);
	if (c->own_root)
		puts("ownroot yes");
	else
		printf("root %s %s\n", c->root.tag, how(&c->root, msize));
	for (size_t i = 0; i < c->nshares; i++)
		printf("share %s %s %s %s\n", c->shares[i].tag, how(&c->shares[i], msize),
		       c->shares[i].read_only ? "ro" : "rw", c->shares[i].target);
	if (c->max_inodes)
		printf("inodes %llu\n", (unsigned long long) c->max_inodes);
	for (size_t i = 0; i < c->nlinks; i++) {
		const struct link_config *l = &c->links[i];
		const uint8_t *m = l->mac;

		inet_ntop(AF_INET, &l->addr, addr, sizeof(addr));
		inet_ntop(AF_INET, &l->gateway, gateway, sizeof(gateway));
		printf("link %s %02x:%02x:%02x:%02x:%02x:%02x %s/%d %u %s\n", l->name, m[0], m[1], m[2], m[3], m[4],
		       m[5], addr, __builtin_popcount(l->mask), l->mtu, l->gateway ? gateway : "-");
	}
	for (size_t i = 0; i < c->nhosts; i++)
		printf("host %s\n", c->hosts[i]);
	if (*c->host_name)
		printf("hostname %s\n", c->host_name);
	if (c->region)
		printf("region %s %llu %u %u\n", c->region_kind, (unsigned long long) c->region_size, c->region_uid,
		       c->region_gid);
	for (size_t i = 0; i < c->nrdmas; i++)
		printf("rdma %s %s\n", c->rdmas[i].name, c->rdmas[i].net);
	for (size_t i = 0; i < c->nfunctions; i++) {
		const struct function_config *f = &c->functions[i];
		const char *makes = f->ipoib		? "ipoib"
				    : f->net && f->rdma ? "both"
				    : f->soft		? "soft"
				    : f->net		? "net"
				    : f->rdma		? "rdma"
							: "none";

		printf("function %04x %04x ", f->vendor, f->device);
		if (f->addr)
			printf("%s/%d", inet_ntop(AF_INET, &f->addr, addr, sizeof(addr)), __builtin_popcount(f->mask));
		else
			printf("-");
		printf(" %s %u\n", makes, f->mtu);
	}
	for (size_t i = 0; i < c->npeers; i++)
		printf("peer %s\n", c->peers[i]);
}
