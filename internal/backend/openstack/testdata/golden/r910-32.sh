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
#   distances of nodes: Nova has no distances: all remote nodes look alike; numactl -H shows 20 for each; allocation falls back in the order of numbers
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	openstack flavor create --vcpus 32 --ram 131072 --disk "${DISK:-20}" \
		--property hw:cpu_cores=8 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=4 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:numa_cpus.0=0-7 \
		--property hw:numa_cpus.1=8-15 \
		--property hw:numa_cpus.2=16-23 \
		--property hw:numa_cpus.3=24-31 \
		--property hw:numa_mem.0=32768 \
		--property hw:numa_mem.1=32768 \
		--property hw:numa_mem.2=32768 \
		--property hw:numa_mem.3=32768 \
		--property hw:numa_nodes=4 \
		nm.32.131072M
fi
[ "$part" != admin ] || exit 0

openstack server create --flavor nm.32.131072M --image "$IMAGE" --network "$NETWORK" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
