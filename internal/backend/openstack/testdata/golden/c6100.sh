#!/bin/sh
# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.
# usage: NETWORK=… IMAGE=… sh FILE [admin|tenant]; without a word: both
# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.
# USER_DATA=… is a file for the servers' cloud-init.
set -eu
part=${1:-all}

# OpenStack does not promise 5 parts of this plan:
#   which CPUs: Nova chooses CPUs of the node itself, in no order; neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number
#   a core for each vCPU: Nova's policy for that, isolate, finds no host that has SMT; on hosts with SMT cpu_dedicated_set has to have one thread of each core: else two vCPUs share a core
#   last-level caches and dies: Nova refuses hw:cpu_dies, and shows one cache a socket; an MPI that maps ranks by cache maps them wrongly: map by core
#   a device's node in the guest: Nova puts the VM beside the card, and shows the card on no node; bind ranks to the node that measures nearest to the card (docs/openstack.md)
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	# nova.conf of nova-api and nova-compute: [pci] alias = {"name": "0000-05-00-0", "vendor_id": …, "product_id": …, "numa_policy": "required"}
	openstack flavor create --vcpus 12 --ram 20480 --disk "${DISK:-20}" \
		--property hw:cpu_cores=6 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=2 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:mem_page_size=2MB \
		--property hw:numa_cpus.0=0-5 \
		--property hw:numa_cpus.1=6-11 \
		--property hw:numa_mem.0=10240 \
		--property hw:numa_mem.1=10240 \
		--property hw:numa_nodes=2 \
		--property hw:pci_numa_affinity_policy=required \
		--property pci_passthrough:alias=0000-05-00-0:1 \
		nm.12.20480M
fi
[ "$part" != admin ] || exit 0

# An image of your own; else a copy of it, or the administrator.
openstack image set \
		--property hw_machine_type=q35 \
		"$IMAGE"
openstack server create --flavor nm.12.20480M --image "$IMAGE" --network "$NETWORK" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
