/*
 * Chooses the provider that carries messages to other hosts, and one of its devices, and opens it for a domain if
 * possible. The user names a provider, or the first candidate that works is used. struct ivs_core describes the choice.
 */
#include <sched.h>

#include "remote/core_ep.h"
#include "remote/named.h"
#include "remote/nearest.h"
#include "tune.h"

static const char *const candidates[] = { "verbs;ofi_rxm", "efa", "tcp", "tcp;ofi_rxm" };

static bool is_number(const char *name, long *value)
{
	const char *s = getenv(name);

	if (!s || !*s)
		return false;
	*value = strtol(s, NULL, 10);
	return true;
}

/* Returns true if the launcher reports ranks of the job on other nodes. */
static bool several_nodes(void)
{
	long here, all;

	if (is_number("OMPI_COMM_WORLD_LOCAL_SIZE", &here) && is_number("OMPI_COMM_WORLD_SIZE", &all))
		return here < all;
	if (is_number("MPI_LOCALNRANKS", &here) && is_number("PMI_SIZE", &all))
		return here < all;
	if (is_number("SLURM_STEP_NUM_NODES", &all) || is_number("SLURM_NNODES", &all))
		return all > 1;
	return false;
}

/* Returns true if the user requests a provider, be it by "auto". */
static bool asked(void)
{
	return ivs_param.core && *ivs_param.core;
}

static bool named(void)
{
	return asked() && strcmp(ivs_param.core, "auto");
}

static bool refused(void)
{
	return named() && !strcmp(ivs_param.core, "none");
}

bool ivs_core_wanted(void)
{
	return !refused();
}

/* Returns this rank's number within its VM, as launchers report it, or 0 if unknown. */
static unsigned long local_rank(void)
{
	long n;

	if ((is_number("OMPI_COMM_WORLD_LOCAL_RANK", &n) || is_number("MPI_LOCALRANKID", &n) ||
	     is_number("SLURM_LOCALID", &n)) &&
	    n >= 0)
		return (unsigned long) n;
	return 0;
}

/* Returns true if name is an element of list, which commas separate. */
static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *s = list; (s = strstr(s, name)); s += len)
		if ((s == list || s[-1] == ',') && (s[len] == ',' || !s[len]))
			return true;
	return false;
}

/*
 * Reduces *info to one device of those that FI_IVSHMEM_DEVICES names. The rank's own NUMA node is known only here, once
 * its launcher has bound it. Changes nothing if no device is named, or none of them is offered.
 */
static void choose_device(struct fi_info **info)
{
	const char *names[IVS_NEAREST_MAX];
	struct fi_info *of[IVS_NEAREST_MAX], *chosen;
	cpu_set_t cpus[IVS_NEAREST_CPUS / 8 / sizeof(cpu_set_t)];
	size_t n = 0, i;

	if (!ivs_param.devices)
		return;
	for (struct fi_info *f = *info; f && n < IVS_NEAREST_MAX; f = f->next) {
		const char *name = f->domain_attr->name;

		for (i = 0; name && i < n && strcmp(names[i], name); i++)
			;
		if (name && i == n && listed(ivs_param.devices, name)) {
			names[n] = name;
			of[n++] = f;
		}
	}
	if (!n)
		return;
	i = ivs_nearest("/sys", names, n, sched_getaffinity(0, sizeof(cpus), cpus) ? NULL : cpus, local_rank());
	chosen = ivs_lib.dupinfo(of[i]);
	if (!chosen)
		return;
	ivs_lib.freeinfo(*info);
	*info = chosen;
}

/*
 * Asks for a core provider. inject: bytes of a message that it is to copy at once, 0: its own choice. Returns 0 or a
 * negative error.
 */
static int ask_info(const char *name, uint64_t caps, size_t inject, struct fi_info **info)
{
	struct fi_info *hints = ivs_lib.dupinfo(NULL);
	uint32_t version = ivs_lib.version < FI_VERSION(1, 9) ? ivs_lib.version : FI_VERSION(1, 9);
	/*
	 * FI_PROVIDER=ivshmem hides all other providers from ordinary calls. A core provider is asked for without
	 * layers, or a utility provider would be layered on top of it.
	 */
	uint64_t flags = IVS_HIDDEN | (strchr(name, ';') ? 0 : IVS_CORE_ONLY);
	int ret;

	if (!hints)
		return -FI_ENOMEM;
	hints->fabric_attr->prov_name = strdup(name);
	if (!hints->fabric_attr->prov_name) {
		ivs_lib.freeinfo(hints);
		return -FI_ENOMEM;
	}
	hints->caps = caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->tx_attr->inject_size = inject;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	if (caps & FI_TAGGED) {
		/* The application's memory in place, and its CQ data. */
		hints->domain_attr->av_type = FI_AV_TABLE;
		hints->domain_attr->cq_data_size = sizeof(uint64_t);
	} else {
		hints->domain_attr->mr_mode |= FI_MR_LOCAL;
	}
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	/* No progress thread: this provider polls often enough. */
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	ret = ivs_named(version, flags, hints, info);
	ivs_lib.freeinfo(hints);
	if (ret)
		return ret;
	choose_device(info);
	if (!*info || (*info)->ep_attr->max_msg_size < sizeof(((struct buffer *) 0)->data)) {
		ivs_lib.freeinfo(*info);
		return -FI_ENODATA;
	}
	return 0;
}

/*
 * Asks for a core provider, over verbs with a larger inject size. ofi_rxm over verbs copies what it sends at once, but
 * treats it as injected only where its caller requests that; its default is the size that verbs sends inline. It
 * refuses more than FI_OFI_RXM_BUFFER_SIZE.
 */
static int try_info(const char *name, uint64_t caps, struct fi_info **info)
{
	int ret = -FI_ENODATA;

	if (caps & FI_RMA && !strcmp(name, "verbs;ofi_rxm"))
		ret = ask_info(name, caps, IVS_CORE_GATHER_MAX, info);
	return ret ? ask_info(name, caps, 0, info) : 0;
}

/*
 * Tries to open a provider. reads: there is a region, so that this provider does the matching, and large messages are
 * then read (fetch.h). Returns 0 or a negative error.
 */
static int try_open(const char *name, uint64_t caps, bool reads, struct ivs_core *in)
{
	int ret = try_info(name, FI_MSG | FI_TAGGED | (reads ? FI_RMA : 0) | caps, &in->info);

	in->reads = !ret && reads;
	if (ret && reads && named())
		ret = try_info(name, FI_MSG | FI_TAGGED | caps, &in->info);

	/* ofi_rxm over tcp (seen: 1.17) drops the connection when a message is truncated. */
	in->tagged = !ret && strcmp(name, "tcp;ofi_rxm") && in->info->ep_attr->mem_tag_format >> 63 &&
		     in->info->tx_attr->iov_limit >= IVS_IOV_MAX && in->info->rx_attr->iov_limit >= IVS_IOV_MAX;
	if (!ret && !in->tagged)
		ivs_lib.freeinfo(in->info);
	if (!in->tagged) {
		ret = try_info(name, FI_MSG | (reads ? FI_RMA : 0), &in->info);
		in->reads = !ret && reads;
		if (ret && reads && named())
			ret = try_info(name, FI_MSG, &in->info);
	}
	if (ret)
		return ret;
	/* With FI_MR_LOCAL the memory that it reads into would have to be registered. */
	if (in->info->domain_attr->mr_mode & FI_MR_LOCAL)
		in->reads = false;
	/* tcp has no operation that arrives only after all before it, and that the receiver need not handle. */
	in->injects = in->reads && !strncmp(name, "verbs", 5);
	ret = ivs_lib.fabric(in->info->fabric_attr, &in->fabric, NULL);
	if (!ret)
		ret = fi_domain(in->fabric, in->info, &in->spare, NULL);
	if (!ret)
		return 0;
	IVS_INFO(FI_LOG_DOMAIN, "provider %s cannot be used: %s\n", name, ivs_lib.strerror(-ret));
	if (in->fabric)
		fi_close(&in->fabric->fid);
	ivs_lib.freeinfo(in->info);
	memset(in, 0, sizeof(*in));
	return ret;
}

int ivs_core_open(struct ivs_domain *domain, struct ivs_core **out)
{
	uint64_t caps = domain->caps & (FI_DIRECTED_RECV | FI_SOURCE);
	struct ivs_core *in;
	int ret = -FI_ENODATA;
	size_t i;

	*out = NULL;
	/* All ranks are on this host, and a region exists: no other hosts to reach. */
	if (refused() || (domain->region && !asked() && !several_nodes()))
		return -FI_ENODATA;
	in = calloc(1, sizeof(*in));
	if (!in)
		return -FI_ENOMEM;
	if (named())
		ret = try_open(ivs_param.core, caps, domain->region, in);
	else
		for (i = 0; ret && i < sizeof(candidates) / sizeof(candidates[0]); i++)
			ret = try_open(candidates[i], caps, domain->region, in);
	if (ret) {
		IVS_WARN(FI_LOG_DOMAIN, "no provider for ranks on other hosts%s%s: %s\n", named() ? " named " : "",
			 named() ? ivs_param.core : "", ivs_lib.strerror(-ret));
		free(in);
		return ret;
	}
	IVS_INFO(FI_LOG_DOMAIN, "ranks on other hosts are reached over %s, device %s\n",
		 in->info->fabric_attr->prov_name,
		 in->info->domain_attr->name ? in->info->domain_attr->name : "unknown");
	*out = in;
	return 0;
}

void ivs_core_close(struct ivs_core *in)
{
	if (in->spare)
		fi_close(&in->spare->fid);
	fi_close(&in->fabric->fid);
	ivs_lib.freeinfo(in->info);
	free(in);
}

bool ivs_core_passthrough(const struct ivs_domain *domain)
{
	return domain->core && domain->core->tagged;
}
