#!/bin/sh
# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.
# usage: NETWORK=… IMAGE=… sh FILE [admin|tenant]; without a word: both
# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.
# USER_DATA=… is a file for the servers' cloud-init.
set -eu
part=${1:-all}

# OpenStack does not promise 6 parts of this plan:
#   which CPUs: Nova chooses CPUs of the node itself, in no order; neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number
#   a core for each vCPU: Nova's policy for that, isolate, finds no host that has SMT; on hosts with SMT cpu_dedicated_set has to have one thread of each core: else two vCPUs share a core
#   last-level caches and dies: Nova refuses hw:cpu_dies, and shows one cache a socket; an MPI that maps ranks by cache maps them wrongly: map by core
#   distances of nodes: Nova has no distances: all remote nodes look alike; numactl -H shows 20 for each; allocation falls back in the order of numbers
#   width of addresses: Nova takes it from the image only (from 2023.1 on); the image below has it; an earlier Nova shows 40 bits and the card's BARs do not fit
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	openstack flavor create --vcpus 288 --ram 1572864 --disk "${DISK:-20}" \
		--property hw:cpu_cores=24 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=12 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:numa_cpus.0=0-23 \
		--property hw:numa_cpus.1=24-47 \
		--property hw:numa_cpus.10=240-263 \
		--property hw:numa_cpus.11=264-287 \
		--property hw:numa_cpus.2=48-71 \
		--property hw:numa_cpus.3=72-95 \
		--property hw:numa_cpus.4=96-119 \
		--property hw:numa_cpus.5=120-143 \
		--property hw:numa_cpus.6=144-167 \
		--property hw:numa_cpus.7=168-191 \
		--property hw:numa_cpus.8=192-215 \
		--property hw:numa_cpus.9=216-239 \
		--property hw:numa_mem.0=131072 \
		--property hw:numa_mem.1=131072 \
		--property hw:numa_mem.10=131072 \
		--property hw:numa_mem.11=131072 \
		--property hw:numa_mem.2=131072 \
		--property hw:numa_mem.3=131072 \
		--property hw:numa_mem.4=131072 \
		--property hw:numa_mem.5=131072 \
		--property hw:numa_mem.6=131072 \
		--property hw:numa_mem.7=131072 \
		--property hw:numa_mem.8=131072 \
		--property hw:numa_mem.9=131072 \
		--property hw:numa_nodes=12 \
		--property hw:viommu_model=intel \
		nm.288.1572864M
fi
[ "$part" != admin ] || exit 0

# An image of your own; else a copy of it, or the administrator.
openstack image set \
		--property hw_machine_type=q35 \
		--property hw_maxphysaddr_bits=41 \
		--property hw_maxphysaddr_mode=emulate \
		"$IMAGE"
openstack server create --flavor nm.288.1572864M --image "$IMAGE" --network "$NETWORK" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
