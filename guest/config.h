/* The VM's configuration: /nearmetal/config of the initramfs, lines `key value…`. */
#ifndef NM_CONFIG_H
#define NM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NAME_SIZE = 64, TAG_SIZE = 64, CONFIG_MAX = 4 << 20 };

struct mount_config {
	char tag[TAG_SIZE];
	unsigned msize; /* of 9p, bytes; 0: virtiofs */
	bool read_only;
	const char *target; /* NULL for the root */
};

struct link_config {
	char name[16];
	uint8_t mac[6];
	uint32_t addr, mask; /* network byte order */
	unsigned mtu;	     /* 0: unchanged */
	uint32_t gateway;    /* network byte order, 0: none */
};

/* Soft RoCE on a network interface. */
struct rdma_config {
	char name[16], net[16];
};

/* A PCI function of the host that was passed through. */
struct function_config {
	unsigned vendor, device; /* 16 bits each */
	uint32_t addr, mask;	 /* of its network interface; network byte order, 0: none */
	bool net, rdma;		 /* its driver creates a network interface, an RDMA device */
	bool soft;		 /* with net: an RDMA device (rdma_rxe) is created on its network interface */
	bool ipoib;		 /* InfiniBand: an RDMA device, and a network interface if the kernel has IPoIB */
	unsigned mtu;		 /* of its network interface, bytes; 0: unchanged */
};

struct config {
	char name[NAME_SIZE];
	unsigned index;
	struct mount_config root;
	bool own_root; /* the disk that the VM booted from is the root: nothing to mount */
	struct mount_config *shares;
	size_t nshares;
	uint64_t max_inodes; /* of virtiofs in the caches; 0: unlimited */
	struct link_config *links;
	size_t nlinks;
	const char **hosts; /* lines of /etc/hosts */
	size_t nhosts;
	char host_name[NAME_SIZE]; /* "": none */
	bool region;
	char region_kind[16];
	uint64_t region_size; /* bytes */
	uint32_t region_uid, region_gid;
	struct rdma_config *rdmas;
	size_t nrdmas;
	struct function_config *functions;
	size_t nfunctions;
	const char **peers;
	size_t npeers;
};

/*
 * Parses text of n bytes, which it changes and keeps using. Returns false after writing to why (of why_size bytes) a
 * line that names the fault and its place.
 */
bool config_parse(struct config *c, char *text, size_t n, char *why, size_t why_size);
void config_free(struct config *c);
/* Prints the configuration as lines to standard output. */
void config_print(const struct config *c);

#endif
