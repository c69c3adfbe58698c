# part-slurm.sh: a Slurm cluster whose nodes are servers, as slurm/examples/cloud has it; sourced by day.sh. The controller is
# beside them, in the guests' root: it has the same key of munge, and writes into an overlay.
c=/run/controller/root
controller() {
	mkdir -p /run/controller && mount -t tmpfs tmpfs /run/controller && mkdir -p $c /run/controller/upper /run/controller/work &&
		mount -t overlay -o lowerdir=/guest,upperdir=/run/controller/upper,workdir=/run/controller/work overlay $c &&
		mount -t proc proc $c/proc && mount --rbind /dev $c/dev || return
	echo "10.77.0.1 aio" >>$c/etc/hosts
	sed 's/CONTROLLER/aio/; s/ADDRESS/10.77.0.1/' /nm/cloud/slurm.conf >$c/etc/slurm/slurm.conf
	cp /nm/mpi.conf $c/etc/slurm/
	sed -i 's/^MpiDefault/MessageTimeout=100\n&/' $c/etc/slurm/slurm.conf # emulated nodes are slow to answer
	echo "IgnoreSystemd=yes" >$c/etc/slurm/cgroup.conf # the guests have no D-Bus
	chroot $c sh -ec 'install -d -o slurm -g slurm /var/spool/slurmctld; install -d -o munge -g munge /run/munge; runuser -u munge munged'
}
nodes() {
	nearmetal plan -f /nm/cloud/nodes.yaml --on openstack --host host.tar.gz --format openstack >nodes.sh &&
		sed 's/CONTROLLER/10.77.0.1/' /nm/cloud/user-data.yaml >user-data.yaml &&
		{ [ -n "$security" ] || as ann openstack security group rule create --protocol tcp --remote-ip 10.77.0.1/32 default -f value -c id >rule; } &&
		NETWORK=private IMAGE=debian USER_DATA=user-data.yaml as ann sh nodes.sh tenant && until_ "both are built" built
}
built() {
	local is=$(as ann openstack server list -f value -c Status | sort | uniq -c | tr -s ' ')
	case $is in *ERROR*) wrong "a node is in ERROR: $(as ann openstack server show node-vm0 -f value -c fault)" ;; esac
	[ "$is" = " 2 ACTIVE" ]
}
idle() { [ "$(chroot $c sinfo -h -N -o %T | sort | uniq -c | tr -s ' ')" = " 2 idle" ]; }
slurm() {
	as ann python3 /nm/cloud/nodes.py node- $c/etc/slurm/slurm.conf && cat $c/etc/slurm/slurm.conf $c/etc/slurm/topology.conf || return
	(exec setsid chroot $c slurmctld -D >>/log/slurmctld.log 2>&1 </dev/null) &
	echo $! >/run/nm-slurmctld.pid
	until_ "slurmd of both have their configuration, and are idle" idle && regions 2 1 && chroot $c scontrol show topology | grep -F 'Nodes=node-vm[0-1]'
}
job() {
	chroot $c runuser -u ann -- sh -c 'cd /tmp; FI_LOG_LEVEL=info FI_LOG_PROV=ivshmem FI_LOG_SUBSYS=ep_ctrl srun -N 2 -n 4 nm_cg --grid 24' >job.log 2>&1
	local status=$?
	cat job.log
	# The provider's own count, as in the cluster's job.
	[ $status = 0 ] && grep -q checksum job.log && grep -Eq 'channels used: .*[1-9][0-9]* ranks of other VMs, [1-9][0-9]* lines' job.log
}
end() {
	kill "$(cat /run/nm-slurmctld.pid)" "$(cat $c/run/munge/munged.pid)"
	as ann openstack server delete --wait node-vm0 node-vm1 && as ann openstack server group delete node &&
		{ [ -n "$security" ] || as ann openstack security group rule delete "$(cat rule)"; } && umount -l /run/controller && until_ "the region is gone" regions 0 0
}
step "Slurm's controller" controller
step "servers with user data" nodes
step "both are nodes of Slurm, below one switch" slurm
step "srun: MPI of an ordinary user over the region between the nodes" job
step "the nodes are deleted" end
step "nothing is left" nothing
