# part-cluster.sh: a tenant's cluster; sourced by day.sh.
up() {
	cat >demo.yaml <<-X
		name: demo
		backend: "openstack:ann?flavor=nm.2.768M&image=debian&network=private&group=affinity$security"
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
	as ann nearmetal up -v -f demo.yaml --boot-timeout 40m >up.log 2>&1
	local status=$?
	cat up.log
	[ $status = 0 ] && grep -q 'go by the region of 64MiB that their backend promises' up.log && as ann nearmetal ps | grep -w tcg
}
mpi() {
	as ann nearmetal exec -c demo -- mpirun.openmpi --allow-run-as-root -n 4 --map-by node /usr/local/bin/nm_cg --grid 24 >mpi.log 2>&1
	local status=$?
	cat mpi.log
	# The provider's own count: ranks in the other VM are reached by the region.
	[ $status = 0 ] && grep -q checksum mpi.log && grep -Eq 'channels used: .*[1-9][0-9]* ranks of other VMs, [1-9][0-9]* lines' mpi.log
}
ucx() {
	as ann nearmetal exec -c demo -- mpirun.openmpi --allow-run-as-root -n 2 --map-by node -x LD_PRELOAD=/usr/local/lib/nearmetal/ucx/libnearmetal-ucx.so \
		-x UCX_LOG_LEVEL=info --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any /usr/local/bin/nm_cg --grid 24 >ucx.log 2>&1
	local status=$?
	cat ucx.log
	# UCX's own words for the transports that a rank takes to its peer.
	[ $status = 0 ] && grep -q checksum ucx.log && [ "$(grep -c '(ivshmem/ivshmem0' ucx.log)" -ge 2 ]
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
step "up: two servers, and their agents answer" up
step "both have the region" regions 2 1
step "MPI over the region between the servers" mpi
step "MPI over the region by the transport for UCX" ucx
step "verify --flavor in a server" promised
step "verify of the cluster" as_planned
step "down" down
step "nothing is left" nothing
