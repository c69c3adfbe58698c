#!/bin/bash
# day.sh: inside of scripts/openstack.sh's root: an administrator's and a tenant's day, on a real Nova. It says how long
# each step took; what is wrong ends it with status 1.
set -u
cd /root
rm -rf .nm day && mkdir day && cd day
export OS_CLIENT_CONFIG_FILE=/root/day/clouds.yaml
install -m755 /build/nearmetal /build/nearmetal-vsphere /build/nearmetal-rsh /usr/local/bin/
wrong() {
	echo "FAIL: $*"
	exit 1
}
# step WORDS FUNCTION [ARGUMENT...]
step() {
	local words=$1 began=$(date +%s.%N)
	shift
	"$@" >step.log 2>&1 || {
		tail -n 30 step.log
		wrong "$words"
	}
	printf '%7.1f s  %s (load %s)\n' "$(python3 -c "import time; print(time.time() - $began)")" "$words" "$(cut -d' ' -f1 /proc/loadavg)"
}
# as USER COMMAND...: with the rights of a tenant.
as() {
	local user=$1
	shift
	(
		unset ${!OS_*}
		OS_CLIENT_CONFIG_FILE=/root/day/clouds.yaml OS_CLOUD=$user exec "$@"
	)
}
# until WORDS COMMAND...: no event says when Nova and the hook are done.
until_() {
	local words=$1 i
	shift
	for i in $(seq 600); do
		"$@" && return 0
		sleep 0.5
	done
	echo "not so after five minutes: $words"
	nearmetal host openstack-region status
	return 1
}
# regions VMS FILES: whether VMs servers have a region, and FILES regions are there.
regions() {
	[ "$(nearmetal host openstack-region status | grep -c ' there$')" = "$1" ] && [ "$(find /dev/shm -type f | wc -l)" = "$2" ]
}
tenant() {
	echo "  $1: {auth: {auth_url: '$OS_AUTH_URL', username: $1, password: $1, project_name: $2, user_domain_id: default, project_domain_id: default}, region_name: RegionOne}"
}
{
	echo "clouds:"
	tenant ann fluids
	tenant bob solids
} >clouds.yaml

# Nova takes a host whose libvirtd has gone off the scheduler's list until it has found it again, which it tries each minute.
reached() { grep -c "Connection event '1'" /log/nova-compute.log; }
enabled() { [ "$(reached)" -gt "$1" ] && [ "$(openstack compute service list --service nova-compute -f value -c Status)" = enabled ]; }
libvirtd_again() {
	local before=$(reached)
	kill -9 "$(cat /run/nm-libvirtd.pid)"
	tail --pid="$(cat /run/nm-libvirtd.pid)" -f /dev/null
	(exec setsid libvirtd >>/log/libvirtd.log 2>&1 </dev/null) &
	echo $! >/run/nm-libvirtd.pid
	until_ "libvirtd answers" virsh -q list && until_ "Nova counts on the host again" enabled "$before"
}

# -- the administrator
plan() {
	cat >plan.yaml <<-X
		name: demo
		root: backend
		vms: [{name: vm, count: 2, vcpus: 2, memory: 768MiB}]
	X
	nearmetal topology gather host.tar.gz && nearmetal plan -f plan.yaml --on openstack --host host.tar.gz --format openstack >ask.sh &&
		DISK=2 sh ask.sh admin
}
hook() {
	nearmetal host openstack-region install --flavor nm.2.768M=64MiB && libvirtd_again && nearmetal host openstack-region status
}
step "the image is in Glance" bash /nm/image.sh
step "the flavor of a plan" plan
step "the region's hook, and libvirtd again" hook

# -- a tenant's cluster
up() {
	cat >demo.yaml <<-X
		name: demo
		backend: "openstack:ann?flavor=nm.2.768M&image=debian&network=private&group=affinity"
		root: backend
		vms: [{name: vm, count: 2, memory: 768MiB}]
		env:
		  FI_PROVIDER_PATH: "+/usr/local/lib/nearmetal/libfabric/libivshmem-fi.so:/usr/local/lib/nearmetal/libfabric"
		  FI_PROVIDER: ivshmem
		  FI_IVSHMEM_CORE: none
		  FI_LOG_LEVEL: info
		  FI_LOG_PROV: ivshmem
		  FI_LOG_SUBSYS: ep_ctrl
		  OMPI_MCA_mtl: "^psm"
		  OMPI_MCA_mtl_ofi_priority: "100"
	X
	as ann nearmetal up -f demo.yaml --boot-timeout 40m
}
mpi() {
	as ann nearmetal exec -c demo -- mpirun.openmpi --allow-run-as-root -n 4 --map-by node /usr/local/bin/nm_cg --grid 24 >mpi.log 2>&1
	local status=$?
	cat mpi.log
	# The provider's own count: ranks in the other VM are reached by the region.
	[ $status = 0 ] && grep -q checksum mpi.log && grep -Eq 'channels used: .*[1-9][0-9]* ranks of other VMs, [1-9][0-9]* lines' mpi.log
}
promised() {
	openstack flavor show nm.2.768M -f json >flavor.json
	as ann nearmetal cp flavor.json demo/vm0:/root/flavor.json
	as ann nearmetal exec -c demo --vm vm0 -- nearmetal verify --flavor /root/flavor.json >promised.log 2>&1
	cat promised.log
	# An emulated guest has no steady clock, so the whole differs.
	grep -E '^region +ivshmem, 64 MiB +ivshmem, 64 MiB +ok' promised.log
}
as_planned() { as ann nearmetal verify demo; }
down() { as ann nearmetal down demo; }
nothing() {
	local left
	left=$(openstack server list --all-projects -f value -c Name; openstack port list -f value -c ID; openstack security group list -f value -c Name | grep -v '^default$'
		as ann openstack server group list -f value -c Name; as ann openstack keypair list -f value -c Name; find /dev/shm -type f; virsh -q list --all; ls /var/lib/nova/instances | grep -- '-.*-.*-')
	echo "left: $left"
	[ -z "$left" ]
}
step "up: two servers, and their agents answer" up
step "both have the region" regions 2 1
step "MPI over the region between the servers" mpi
step "verify --flavor in a server" promised
step "verify of the cluster" as_planned
step "down" down
step "nothing is left" nothing

# -- servers that nearmetal has not made
server() { # USER NAME
	as "$1" openstack --os-compute-api-version 2.90 server create --flavor nm.2.768M --image debian --nic none --wait "$2" -f value -c status
}
servers() { server ann free-1 && server ann free-2 && server bob free-1 && until_ "three regions' VMs" regions 3 2; }
instance() { openstack server list --all-projects --name "^$2\$" --project "$1" --long -f value -c ID | head -1 | xargs -I{} openstack server show {} -f value -c OS-EXT-SRV-ATTR:instance_name; }
hard_reboot() {
	local before=$(virsh domid "$(instance fluids free-2)")
	as ann openstack --os-compute-api-version 2.90 server reboot --hard --wait free-2
	[ "$(virsh domid "$(instance fluids free-2)")" != "$before" ] && until_ "the region after a hard reboot" regions 3 2
}
crash() {
	kill -9 "$(pgrep -f "guest=$(instance fluids free-2),")" && until_ "the killed VM has left" regions 2 2
}
again() {
	until_ "Nova sees it" sh -c 'openstack server list --all-projects --name free-2 -f value -c Status | grep -q SHUTOFF'
	as ann openstack --os-compute-api-version 2.90 server start free-2 && until_ "it joins again" regions 3 2
}
daemon() { libvirtd_again && regions 3 2; }
delete() { as ann openstack server delete --wait free-1 free-2 && until_ "the region goes with its last VM" regions 1 1; }
last() { as bob openstack server delete --wait free-1 && until_ "no region" regions 0 0; }
step "three servers of two projects: two regions" servers
step "a hard reboot: it joins again" hard_reboot
step "QEMU is killed: it leaves" crash
step "Nova starts it again: it joins" again
step "libvirtd is killed: all stay" daemon
step "one project's are deleted: its region is gone, the other's stays" delete
step "the last is deleted" last
step "nothing is left" nothing
remove() { nearmetal host openstack-region remove && ! ls /etc/libvirt/hooks/qemu.d/* 2>/dev/null; }
step "the hook is removed" remove
echo "all as it should be"
