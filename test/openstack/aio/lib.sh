# lib.sh: what the parts of a day have in common; sourced by day.sh.
export OS_CLIENT_CONFIG_FILE=/root/day/clouds.yaml
install -m755 /build/nearmetal /build/nearmetal-vsphere /build/nearmetal-rsh /usr/local/bin/
# security is the backend's word for clouds whose Neutron has no security groups (config.sh).
security=
[ -e /usr/bin/neutron-linuxbridge-agent ] || security="&security=none"
exec 3>&1 # of the day, within a step too
wrong() {
	echo "FAIL: $*" >&3
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
# until_ WORDS COMMAND...: no event says when Nova, the hook and a guest are done.
until_() {
	local words=$1 end=$((SECONDS + 1200))
	shift
	while [ $SECONDS -lt $end ]; do
		"$@" && return 0
		sleep 0.5
	done
	echo "not so after twenty minutes: $words"
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
nothing() {
	local left
	left=$(
		python3 /nm/left.py || echo "left.py failed"
		find /dev/shm -type f
		virsh -q list --all
		ls /var/lib/nova/instances | grep -- '-.*-.*-'
	)
	echo "left: $left"
	[ -z "$left" ]
}
# server USER NAME [OPTION...]: a server without a port, once it is active.
server() {
	local user=$1 name=$2
	shift 2
	as "$user" openstack --os-compute-api-version 2.90 server create --flavor nm.2.768M --image debian --nic none --wait "$@" "$name" -f value -c status
}
# instance PROJECT NAME: libvirt's name of a server.
instance() { openstack server list --all-projects --name "^$2\$" --project "$1" --long -f value -c ID | head -1 | xargs -I{} openstack server show {} -f value -c OS-EXT-SRV-ATTR:instance_name; }
