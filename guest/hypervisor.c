#include "hypervisor.h"
#include "fields.h"

#include <cpuid.h>
#include <ctype.h>

#define LEAF  0x40000000u
#define IN_VM (1u << 31) /* in ECX of leaf 1 */

void hypervisor_add(struct buf *b)
{
	unsigned eax, regs[3], ecx, edx;
	char word[13] = "";

	if (!__get_cpuid(1, &eax, &regs[0], &ecx, &edx) || !(ecx & IN_VM))
		return;
	__cpuid(LEAF, eax, regs[0], regs[1], regs[2]);
	for (int i = 0; i < 12; i++) {
		char c = regs[i / 4] >> 8 * (i % 4);

		if (!isprint((unsigned char) c))
			break;
		word[i] = c;
	}
	fields_add(b, "hypervisor", word);
}
