/*
 * The header of a region: the memory that the VMs of one host share. docs/region.md describes it; internal/region has
 * the same constants, and its tests compare the two. All numbers are little-endian.
 *
 * All data read from a region was written by another process. Copy the header once with nm_region_read() and use only
 * the copy.
 */
#ifndef NEARMETAL_REGION_H
#define NEARMETAL_REGION_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a region is little-endian"
#endif

#define NM_REGION_MAGIC	       "NMREGION" /* 8 bytes, no terminating zero */
#define NM_REGION_VERSION      1
#define NM_REGION_HEADER_BYTES 4096
#define NM_REGION_MIN_BYTES    (1ULL << 20) /* of the file */
#define NM_REGION_MAX_BYTES    (1ULL << 46)
#define NM_REGION_ID_BYTES     16

/*
 * The offset of a devdax region in its file: a guest's /dev/dax0.0 maps the file from here on, and its pages have
 * this size.
 */
#define NM_REGION_DEVDAX_OFFSET (2ULL << 20)

#define NM_REGION_FLAG_HUGETLB (1ULL << 0) /* backed by a hugetlbfs file */
#define NM_REGION_FLAG_DEVDAX  (1ULL << 1) /* starts 2 MiB into its file */
#define NM_REGION_FLAGS	       (NM_REGION_FLAG_HUGETLB | NM_REGION_FLAG_DEVDAX)

#define NM_REGION_LAYOUT_NONE 0 /* the layout area is all zeros */

/* Path of the region in a VM. */
#define NM_REGION_DEVICE "/dev/nearmetal/region"

struct nm_region_header {
	uint8_t magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t size_bytes; /* of the region, including this header */
	uint64_t flags;
	uint8_t key[NM_REGION_ID_BYTES];     /* random, new for each region */
	uint8_t cluster[NM_REGION_ID_BYTES]; /* random id of the cluster */
	uint8_t host[NM_REGION_ID_BYTES];    /* HMAC-SHA-256(machine-id, key), truncated */
	uint64_t layout_offset;		     /* from the header's first byte */
	uint64_t layout_bytes;
	uint32_t layout_type; /* NM_REGION_LAYOUT_* */
	uint32_t layout_version;
	uint64_t scratch_offset; /* for the test programs in kernels/ */
	uint64_t scratch_bytes;
	uint8_t reserved[NM_REGION_HEADER_BYTES - 124]; /* zeros */
	uint32_t crc;					/* CRC-32C of all preceding bytes */
};

_Static_assert(sizeof(struct nm_region_header) == NM_REGION_HEADER_BYTES, "the header is one page");
_Static_assert(offsetof(struct nm_region_header, reserved) == 120 && offsetof(struct nm_region_header, crc) == 4092,
	       "no holes");

/* Returns the CRC-32C (Castagnoli, reflected, polynomial 0x1EDC6F41) as defined for iSCSI (RFC 3720). */
static inline uint32_t nm_region_crc32c(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t crc = ~0U;

	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0x82f63b78U & (0U - (crc & 1)));
	}
	return ~crc;
}

/* Returns whether [offset, offset + len) is after the header and inside the region. */
static inline int nm_region_area_ok(uint64_t offset, uint64_t len, uint64_t size)
{
	return offset >= NM_REGION_HEADER_BYTES && offset <= size && len <= size - offset && offset % 4096 == 0 &&
	       len % 4096 == 0;
}

/*
 * Copies the header at base into out and checks it. mapped_bytes are mapped from base on. Returns NULL if it is
 * valid, else a description of the fault.
 */
static inline const char *nm_region_read(const void *base, uint64_t mapped_bytes, struct nm_region_header *out)
{
	if (mapped_bytes < NM_REGION_HEADER_BYTES)
		return "smaller than a region's header (4096 bytes)";
	memcpy(out, base, sizeof(*out));
	if (memcmp(out->magic, NM_REGION_MAGIC, sizeof(out->magic)))
		return "not a nearmetal region (no NMREGION at its start)";
	if (out->version != NM_REGION_VERSION)
		return "a region of another version than 1";
	if (out->crc != nm_region_crc32c(out, offsetof(struct nm_region_header, crc)))
		return "the header's checksum is wrong";
	if (out->header_bytes != NM_REGION_HEADER_BYTES)
		return "the header's size is not 4096 bytes";
	if (out->flags & ~NM_REGION_FLAGS)
		return "unknown flags in the header";
	if (out->size_bytes > mapped_bytes)
		return "the header says that the region is larger than it is";
	if (out->size_bytes < NM_REGION_MIN_BYTES || out->size_bytes > NM_REGION_MAX_BYTES)
		return "the region's size in the header is out of range";
	if (!nm_region_area_ok(out->layout_offset, out->layout_bytes, out->size_bytes))
		return "the layout area is not inside the region";
	if (!nm_region_area_ok(out->scratch_offset, out->scratch_bytes, out->size_bytes))
		return "the scratch area is not inside the region";
	if (out->layout_offset < out->scratch_offset + out->scratch_bytes &&
	    out->scratch_offset < out->layout_offset + out->layout_bytes)
		return "the layout and scratch areas overlap";
	return NULL;
}

#endif /* NEARMETAL_REGION_H */
