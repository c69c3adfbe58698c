#include "where.h"

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

bool emulated(void)
{
	unsigned int a, b, c, d, name[3];

	/* Leaf 1, ECX bit 31: there is a hypervisor, so leaf 0x40000000 has a meaning. */
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 31))
		return false;
	__cpuid(0x40000000, a, name[0], name[1], name[2]);
	return !memcmp(name, "TCGTCGTCGTCG", 12);
}
#else
bool emulated(void)
{
	return false;
}
#endif
