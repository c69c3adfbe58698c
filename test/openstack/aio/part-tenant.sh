# part-tenant.sh: a tenant with an application credential: what is refused, in one line, and an owner that is killed; sourced by
# day.sh.
on="openstack:app?flavor=nm.2.768M&image=debian&network=private&group=affinity$security"
export NEARMETAL_RUNTIME_DIR=/run/nm-tenant
credential() {
	as ann openstack application credential delete nearmetal 2>/dev/null # of another day in this cloud
	as ann openstack application credential create nearmetal -f json >credential.json && python3 - "$OS_AUTH_URL" >>clouds.yaml <<-X
		import json, sys
		c = json.load(open('credential.json'))
		for name, secret in (('app', c['secret']), ('wrong', 'wrong')):
		    print("  %s: {auth_type: v3applicationcredential, auth: {auth_url: '%s', application_credential_id: %s, application_credential_secret: '%s'}, region_name: RegionOne}"
		          % (name, sys.argv[1], c['id'], secret))
	X
}
start() { as ann nearmetal -q up --on "$1" --root backend --no-share --name demo --vms "$2" --memory 768MiB --boot-timeout 20m; }
# refused WORDS BACKEND VMS: one line with WORDS, status 125, and nothing is left.
refused() {
	start "$2" "$3" >refused.log 2>&1
	local status=$?
	cat refused.log
	[ $status = 125 ] && [ "$(wc -l <refused.log)" = 1 ] && grep -Fq "$1" refused.log && nothing
}
vcpus() {
	openstack quota set --cores 3 fluids
	refused "the project's quota: 4 vCPUs are needed, and 0 of 3 are in use" "$on" 2
	local status=$?
	openstack quota set --cores 20 fluids
	return $status
}
ports() {
	openstack quota set --ports 1 fluids
	refused "Quota exceeded for resources: ['port']" "$on" 2
	local status=$?
	openstack quota set --ports 50 fluids
	return $status
}
groups() {
	openstack quota set --server-groups 0 fluids
	refused "group=none" "$on" 2
	local status=$?
	openstack quota set --server-groups 10 fluids
	return $status
}
virtio() {
	head -c 1024 /dev/zero >ide.raw && openstack image create ide --public --disk-format raw --file ide.raw --property hw_disk_bus=ide -f value -c id || return
	refused "image ide has hw_disk_bus=ide: an emulated device where virtio is needed" "${on/image=debian/image=ide}" 1
	local status=$?
	openstack image delete ide
	return $status
}
nowhere() {
	openstack flavor create --vcpus 2 --ram 768 --disk 2 --property hw:numa_nodes=2 nm.nowhere -f value -c id || return
	refused "No valid host was found" "${on/nm.2.768M/nm.nowhere}" 1
	local status=$?
	openstack flavor delete nm.nowhere
	return $status
}
taken() {
	server ann demo-vm0 || return
	start "$on" 1 >refused.log 2>&1
	local status=$?
	cat refused.log
	as ann openstack server delete --wait demo-vm0
	[ $status = 125 ] && [ "$(wc -l <refused.log)" = 1 ] && grep -Fq "the project has a server demo-vm0 already" refused.log && nothing
}
# killed COMMAND...: the owner is killed once COMMAND succeeds. The next command finds all that was made, and deletes it.
killed() {
	start "$on" 2 >killed.log 2>&1 &
	local up=$!
	until_ "it is at that step" "$@" && kill -9 "$(owner)"
	wait $up && return 1
	cat killed.log
	as ann nearmetal ps && nothing
}
owner() { python3 -c "import json; print(json.load(open('$NEARMETAL_RUNTIME_DIR/demo/record.json'))['owner'])"; }
recorded() { grep -q "\"$1" $NEARMETAL_RUNTIME_DIR/demo/journal 2>/dev/null; }
building() { [ "$(virsh -q list | wc -l)" -ge 1 ]; }
up() { start "$on" 1 && [ "$(as ann nearmetal exec -c demo --vm vm0 -- echo here)" = here ]; }
second() {
	start "$on" 1 >refused.log 2>&1
	local status=$?
	cat refused.log
	[ $status = 125 ] && [ "$(wc -l <refused.log)" = 1 ] && grep -Fq 'already' refused.log
}
running() { kill -9 "$(owner)" && as ann nearmetal down --all && nothing; }
first="security group"
[ -z "$security" ] || first=port
step "an application credential" credential
[ -z "$security" ] || step "refused: the cloud has no security groups" refused "say security=none in the backend's name" "${on/$security}" 1
step "refused: a wrong secret" refused "401" "${on/app/wrong}" 1
step "refused: no quota of vCPUs" vcpus
step "refused: no quota of ports" ports
step "refused: no server group allowed" groups
step "refused: an image without virtio" virtio
step "refused: a flavor that Nova cannot place" nowhere
step "refused: no host has a virtual function" refused "No valid host was found" "$on&vnic=direct" 1
step "refused: a server of that name is there" taken
step "the owner is killed before the first port is made" killed recorded "$first"
step "the owner is killed before the first server is made" killed recorded "server demo"
step "the owner is killed as servers are built" killed building
step "up with the credential" up
step "refused: a second cluster of that name" second
step "the owner is killed as it runs, then down" running
unset NEARMETAL_RUNTIME_DIR
