#include <stdlib.h>
#include <string.h>

#include <slurm/spank.h>

#include "settings.h"

void nm_settings_read(struct nm_settings *s, int ac, char **av)
{
	*s = (struct nm_settings) {
		.nearmetal = NM_BINDIR "/nearmetal",
		.state = "/run/nearmetal-slurm",
		.accel = "auto",
		.isolation = "auto",
		.backend = "qemu",
		.boot_timeout = 300,
	};
	for (int i = 0; i < ac; i++) {
		const char *value = strchr(av[i], '=');
		size_t n = value ? (size_t) (value - av[i]) : strlen(av[i]);

#define IS(name) (value && n == strlen(name) && !strncmp(av[i], name, n))
		if (IS("nearmetal"))
			s->nearmetal = value + 1;
		else if (IS("state"))
			s->state = value + 1;
		else if (IS("region_gres"))
			s->region_gres = value[1] ? value + 1 : NULL;
		else if (IS("ports"))
			s->ports = value + 1;
		else if (IS("sysroot"))
			s->sysroot = value + 1;
		else if (IS("accel"))
			s->accel = value + 1;
		else if (IS("isolation")) {
			s->isolation = value[1] ? value + 1 : "(empty)";
			/*
			 * An unknown value is kept, so that nearmetal rejects it; a default could be weaker than
			 * intended.
			 */
			if (strcmp(s->isolation, "auto") && strcmp(s->isolation, "standard") &&
			    strcmp(s->isolation, "strict"))
				slurm_error("nearmetal: plugstack.conf: isolation=%s: auto, standard or strict; no VM "
					    "will start",
					    s->isolation);
		} else if (IS("vm_backend"))
			s->backend = value[1] ? value + 1 : "(empty)";
		else if (IS("root_writes"))
			s->root_writes = !strcmp(value + 1, "yes");
		else if (IS("boot_timeout") && atoi(value + 1) > 0)
			s->boot_timeout = (unsigned int) atoi(value + 1);
		else if (strncmp(av[i], "vm", 2) && strncmp(av[i], "no_vm", 5))
			slurm_error("nearmetal: plugstack.conf: argument %s is not known", av[i]);
#undef IS
	}
}
