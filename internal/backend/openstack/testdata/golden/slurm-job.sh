#!/bin/sh
# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.
# usage: NETWORK=… IMAGE=… sh FILE [admin|tenant]; without a word: both
# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.
# USER_DATA=… is a file for the servers' cloud-init.
set -eu
part=${1:-all}

# OpenStack does not promise 4 parts of this plan:
#   which CPUs: Nova chooses CPUs of the node itself, in no order; neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number
#   a core for each vCPU: Nova's policy for that, isolate, finds no host that has SMT; on hosts with SMT cpu_dedicated_set has to have one thread of each core: else two vCPUs share a core
#   the region: Nova has no memory between VMs: its hosts need nearmetal host openstack-region install; else MPI between VMs of a host uses the network: have one VM a host
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	openstack flavor create --vcpus 6 --ram 16384 --disk "${DISK:-20}" \
		--property hw:cpu_cores=6 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:numa_nodes=1 \
		--property nearmetal:region=256MiB \
		nm.6.16384M
fi
[ "$part" != admin ] || exit 0

group=$(openstack server group create -f value -c id --policy affinity cluster)
openstack server create --flavor nm.6.16384M --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
openstack server create --flavor nm.6.16384M --image "$IMAGE" --network "$NETWORK" --hint "group=$group" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm1
