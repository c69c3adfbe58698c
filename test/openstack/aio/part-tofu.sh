# part-tofu.sh: OpenTofu makes what a plan asks for, finds nothing to change in it, and takes it away; sourced by day.sh. scripts/tofu.sh
# has built it, and the provider for OpenStack.
export TF_CLI_CONFIG_FILE=/root/day/tofu.config CHECKPOINT_DISABLE=1
export TF_VAR_disk=2
tofu() { /build/tofu/tofu -chdir=/root/day/tofu "$@"; }
written() {
	echo 'provider_installation { dev_overrides { "terraform-provider-openstack/openstack" = "/build/tofu" } }' >$TF_CLI_CONFIG_FILE
	mkdir -p tofu && cat >tofu.yaml <<-X && nearmetal plan -f tofu.yaml --on openstack --host host.tar.gz --format openstack-tofu >tofu/plan.tf.json || return
		name: tofu
		root: backend
		vms: [{name: vm, count: 2, vcpus: 2, memory: 832MiB}]
		region: {size: 64MiB}
	X
	TF_VAR_image=$(openstack image show debian -f value -c id) TF_VAR_network=$(openstack network show private -f value -c id)
	export TF_VAR_image TF_VAR_network
	tofu validate
}
# specs: the flavor's, as Nova has them now, are those of the file.
specs() {
	openstack flavor show nm.2.832M -f json >flavor.json && python3 -c '
import json
asked = json.load(open("tofu/plan.tf.json"))["resource"]["openstack_compute_flavor_v2"]["n_nm_2_832M"]["extra_specs"]
got = json.load(open("flavor.json"))["properties"]
assert got == asked, (got, asked)'
}
made() { tofu apply -auto-approve -input=false -no-color && specs && [ "$(openstack server list -f value -c Name -c Status | sort | tr '\n' ' ')" = "tofu-vm0 ACTIVE tofu-vm1 ACTIVE " ]; }
# 0 is nothing to change, 2 something.
same() { tofu plan -detailed-exitcode -input=false -no-color; }
gone() { tofu destroy -auto-approve -input=false -no-color && ! openstack flavor show nm.2.832M; }
step "OpenTofu takes the plan" written
step "flavor, server group and two servers are made" made
step "nothing is to be changed in them" same
step "all is taken away" gone
step "nothing is left" nothing
