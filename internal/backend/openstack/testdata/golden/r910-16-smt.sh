#!/bin/sh
# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.
# usage: NETWORK=… IMAGE=… sh FILE [admin|tenant]; without a word: both
# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.
# USER_DATA=… is a file for the servers' cloud-init.
set -eu
part=${1:-all}

# OpenStack does not promise 2 parts of this plan:
#   which CPUs: Nova chooses CPUs of the node itself, in no order; neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	openstack flavor create --vcpus 16 --ram 49152 --disk "${DISK:-20}" \
		--property hw:cpu_cores=8 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=require \
		--property hw:cpu_threads=2 \
		--property hw:emulator_threads_policy=share \
		--property hw:numa_nodes=1 \
		nm.16.49152M
fi
[ "$part" != admin ] || exit 0

openstack server create --flavor nm.16.49152M --image "$IMAGE" --network "$NETWORK" ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
