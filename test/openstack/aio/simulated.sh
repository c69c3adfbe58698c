#!/bin/bash
# simulated.sh: inside of scripts/openstack.sh's root: two simulated hosts, and what Nova's scheduler does with cluster files.
set -u
openstack compute service set --disable aio nova-compute
for host in "two 2 8 2 64 1" "eight 8 16 1 256 3"; do
	name=${host%% *}
	(exec setsid python3 /nm/fake.py $host >>/log/fake-$name.log 2>&1 </dev/null) &
done
for i in $(seq 600); do
	python3 /nm/hosts.py 3 && break
	nova-manage cell_v2 discover_hosts >>/log/nova-manage.log 2>&1
	sleep 1
done
# A host is in a cell once it is looked for after its first report.
nova-manage cell_v2 discover_hosts >>/log/nova-manage.log 2>&1
exec python3 /nm/simulated.py "$@"
