#!/bin/sh
# What the plan asks OpenStack for. The first part needs an administrator, the second a tenant.
# usage: NETWORK=… IMAGE=… VFNET=… sh FILE [admin|tenant]; without a word: both
# DISK=… is the size of the flavors' disk in GiB. Nova lets tenants use none of 0 GiB with an image.
# USER_DATA=… is a file for the servers' cloud-init.
set -eu
part=${1:-all}

# OpenStack does not promise 3 parts of this plan:
#   which CPUs: Nova chooses CPUs of the node itself, in no order; neighbouring vCPUs need not be neighbouring cores: bind ranks by what the guest measures, not by number
#   a core for each vCPU: Nova's policy for that, isolate, finds no host that has SMT; on hosts with SMT cpu_dedicated_set has to have one thread of each core: else two vCPUs share a core
#   root: host: a server starts from an image; put the MPI library and the program into the image

if [ "$part" != tenant ]; then
	openstack flavor create --vcpus 8 --ram 59392 --disk "${DISK:-20}" \
		--property hw:cpu_cores=8 \
		--property hw:cpu_policy=dedicated \
		--property hw:cpu_sockets=1 \
		--property hw:cpu_thread_policy=prefer \
		--property hw:cpu_threads=1 \
		--property hw:emulator_threads_policy=share \
		--property hw:mem_page_size=1GB \
		--property hw:numa_nodes=1 \
		--property hw:pci_numa_affinity_policy=required \
		nm.8.59392M
fi
[ "$part" != admin ] || exit 0

# An image of your own; else a copy of it, or the administrator.
openstack image set \
		--property hw_machine_type=q35 \
		"$IMAGE"
openstack port create --network "$VFNET" --vnic-type direct cluster-vm0-vf0 # a VF of a card like 0000:07:00.0
openstack server create --flavor nm.8.59392M --image "$IMAGE" --network "$NETWORK" --port cluster-vm0-vf0 ${USER_DATA:+--config-drive true --user-data "$USER_DATA"} cluster-vm0
