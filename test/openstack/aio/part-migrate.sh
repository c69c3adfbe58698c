# part-migrate.sh: cold migration to a second compute host, which has a libvirtd, a /dev/shm and a hook of its own; sourced by
# day.sh. Both hosts see Nova's instances, as over NFS.
second() {
	(exec setsid unshare --mount --uts --propagation private bash /nm/second.sh >>/log/second.log 2>&1 </dev/null) &
	echo $! >/run/nm-second.pid
	until_ "the scheduler has two hosts" two_hosts
}
two_hosts() {
	kill -0 "$(cat /run/nm-second.pid)" || return
	nova-manage cell_v2 discover_hosts >>/log/nova-manage.log 2>&1
	python3 /nm/hosts.py 2
}
# there COMMAND...: on the second host.
there() { nsenter -t "$(cat /run/nm-second.pid)" -m -u -- "$@"; }
# regions_there VMS FILES: as regions, there.
regions_there() {
	[ "$(there nearmetal host openstack-region status | grep -c ' there$')" = "$1" ] && [ "$(there find /dev/shm -type f | wc -l)" = "$2" ]
}
on() { openstack server show "$(id_of "$1")" -f value -c OS-EXT-SRV-ATTR:host; }
id_of() { openstack server list --all-projects --name "^$1\$" -f value -c ID; }
servers() {
	openstack compute service set --disable aio2 nova-compute && server ann m-1 && server ann m-2 && until_ "both have the region" regions 2 1 &&
		openstack compute service set --enable aio2 nova-compute
}
migrate() {
	openstack --os-compute-api-version 2.90 server migrate --host aio2 "$(id_of m-2)" && until_ "it is there" status_of m-2 VERIFY_RESIZE &&
		openstack server resize confirm "$(id_of m-2)" && until_ "it is confirmed" status_of m-2 ACTIVE && [ "$(on m-2)" = aio2 ] &&
		until_ "one left here" regions 1 1 && until_ "the other has a region there" regions_there 1 1
}
status_of() {
	local s=$(openstack server show "$(id_of "$1")" -f value -c status)
	[ "$s" = "$2" ] || { [ "$s" != ERROR ] || wrong "$1 is in ERROR"; false; }
}
end() {
	openstack server delete --wait "$(id_of m-1)" "$(id_of m-2)" && until_ "no region here" regions 0 0 && until_ "none there" regions_there 0 0
}
gone() {
	local space=$(readlink "/proc/$(cat /run/nm-second.pid)/ns/mnt") p
	for p in /proc/[0-9]*; do
		[ "$(readlink "$p/ns/mnt")" != "$space" ] || kill -9 "${p#/proc/}"
	done
	openstack compute service delete "$(openstack compute service list --host aio2 -f value -c ID)"
}
step "a second compute host" second
step "two servers with a region on the first" servers
step "one is migrated: it leaves the region here, and has one there" migrate
step "both are deleted: no region on either" end
step "nothing is left" nothing
step "the second host goes" gone
