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
#   the region: Nova has no memory between VMs: its hosts need nearmetal host openstack-region install; else MPI between VMs of a host uses the network: have one VM a host
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	# nova.conf of nova-api and nova-compute: [pci] alias = {"name": "0000-21-00-0", "vendor_id": …, "product_id": …, "numa_policy": "required"}
	# nova.conf of nova-api and nova-compute: [pci] alias = {"name": "0000-a1-00-0", "vendor_id": …, "product_id": …, "numa_policy": "required"}
	openstack flavor create --vcpus 16 --ram 40960 --disk "${DISK:-20}" \
		--property hw:cpu_cores=16 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:mem_page_size=1GB \
		--property hw:numa_nodes=1 \
		--property hw:pci_numa_affinity_policy=required \
		--property nearmetal:region=1GiB \
		--property pci_passthrough:alias=0000-21-00-0:1 \
		nm.16.40960M
	openstack flavor create --vcpus 16 --ram 40960 --disk "${DISK:-20}" \
		--property hw:cpu_cores=16 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:mem_page_size=1GB \
		--property hw:numa_nodes=1 \
		--property hw:pci_numa_affinity_policy=required \
		--property nearmetal:region=1GiB \
		--property pci_passthrough:alias=0000-a1-00-0:1 \
		nm.16.40960M.2
	openstack flavor create --vcpus 16 --ram 40960 --disk "${DISK:-20}" \
		--property hw:cpu_cores=16 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:mem_page_size=1GB \
		--property hw:numa_nodes=1 \
		--property hw:pci_numa_affinity_policy=preferred \
		--property nearmetal:region=1GiB \
		--property pci_passthrough:alias=0000-21-00-0:1 \
		nm.16.40960M.3
	openstack flavor create --vcpus 16 --ram 40960 --disk "${DISK:-20}" \
		--property hw:cpu_cores=16 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:mem_page_size=1GB \
		--property hw:numa_nodes=1 \
		--property hw:pci_numa_affinity_policy=preferred \
		--property nearmetal:region=1GiB \
		--property pci_passthrough:alias=0000-a1-00-0:1 \
		nm.16.40960M.4
fi
[ "$part" != admin ] || exit 0

# An image of your own; else a copy of it, or the administrator.
openstack image set \
		--property hw_machine_type=q35 \
		"$IMAGE"
group=$(openstack server group create -f value -c id --policy affinity cluster)
openstack server create --flavor nm.16.40960M --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
openstack server create --flavor nm.16.40960M.2 --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm1
openstack server create --flavor nm.16.40960M.3 --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm2
openstack server create --flavor nm.16.40960M.4 --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm3
