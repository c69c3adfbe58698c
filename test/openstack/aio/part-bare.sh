# part-bare.sh: a flavor promises a region, and the compute host has no hook: a line of up and one of verify; sourced by day.sh.
bare() { nearmetal host openstack-region remove && libvirtd_again && ! nearmetal host openstack-region status; }
up() {
	as ann nearmetal -q up --on "openstack:ann?flavor=nm.2.768M&image=debian&network=private$security" --root backend --name bare --vms 1 --memory 768MiB \
		--no-share --boot-timeout 20m 2>up.log
	local status=$?
	cat up.log
	[ $status = 0 ] && [ "$(wc -l <up.log)" = 1 ] &&
		grep -F "planned ivshmem, 64 MiB, found no ivshmem device: flavor nm.2.768M promises it, and its host's hook did not plug it" up.log
}
promised() {
	openstack flavor show nm.2.768M -f json >flavor.json && as ann nearmetal cp flavor.json bare/vm0:/root/flavor.json || return
	as ann nearmetal exec -c bare --vm vm0 -- nearmetal verify --flavor /root/flavor.json >promised.log 2>&1
	local status=$?
	cat promised.log
	[ $status = 3 ] && grep -E '^region +ivshmem, 64 MiB .*differs' promised.log
}
down() { as ann nearmetal down bare; }
step "the host has no hook" bare
step "up: a line says so" up
step "verify --flavor in the server says so" promised
step "down" down
step "nothing is left" nothing
step "the hook is there again" hook
