# part-servers.sh: servers that nearmetal has not made; sourced by day.sh.
servers() { server ann free-1 && server ann free-2 && server bob free-1 && until_ "three regions' VMs" regions 3 2; }
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
