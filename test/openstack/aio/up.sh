#!/bin/bash
# up.sh COMMAND...: inside of scripts/openstack.sh's root: starts the services, from empty databases, and runs COMMAND.
set -u
start=$(date +%s)
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*"; }
L=/log
mkdir -p /etc/nm
rm -f $L/*.log
echo "127.0.0.1 localhost aio" >/etc/hosts
echo aio >/etc/hostname

# bg NAME COMMAND...: a service; its output is in /log/NAME.log, its process in /run/nm-NAME.pid.
bg() {
	local name=$1
	shift
	(exec setsid "$@" >>$L/$name.log 2>&1 </dev/null) &
	echo $! >/run/nm-$name.pid
}
# await NAME COMMAND...: until COMMAND succeeds; no event says when a service listens.
await() {
	local name=$1 i
	shift
	for i in $(seq 1200); do
		"$@" >/dev/null 2>&1 && return 0
		kill -0 "$(cat /run/nm-$name.pid)" 2>/dev/null || break
		sleep 0.25
	done
	say "$name is not there; the end of its log:"
	tail -n 20 $L/$name.log
	exit 1
}
# must WHAT COMMAND...: COMMAND, whose output is in /log/WHAT.log.
must() {
	local what=$1
	shift
	"$@" >>$L/$what.log 2>&1 || {
		say "$* failed:"
		tail -n 20 $L/$what.log
		exit 1
	}
}
url() { curl -s -o /dev/null "$1"; }

cat >/etc/nm/admin <<X
export OS_AUTH_URL=http://127.0.0.1:5000/v3 OS_USERNAME=admin OS_PASSWORD=admin OS_PROJECT_NAME=admin \
 OS_USER_DOMAIN_ID=default OS_PROJECT_DOMAIN_ID=default OS_IDENTITY_API_VERSION=3 OS_REGION_NAME=RegionOne \
 OS_COMPUTE_API_VERSION=2.92 OS_PLACEMENT_API_VERSION=1.39
X
. /etc/nm/admin
. /nm/config.sh

# The broker takes longest.
export RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 ERL_EPMD_ADDRESS=127.0.0.1
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +sbwt none"
rm -rf /var/lib/rabbitmq/mnesia
mkdir -p /var/lib/rabbitmq /var/log/rabbitmq
chown -R rabbitmq /var/lib/rabbitmq /var/log/rabbitmq
bg rabbitmq rabbitmq-server

mkdir -p /run/mysqld /run/nova-lock /run/neutron-lock /run/libvirt /var/lib/glance/images /run/uwsgi
rm -rf /var/lib/nm-db /etc/libvirt/qemu/instance-*.xml /var/lib/nova/instances /var/lib/glance/images/* /etc/libvirt/hooks/qemu.d /etc/nearmetal /var/lib/nearmetal
mkdir -p /var/lib/nova/instances
chown mysql /run/mysqld
must mariadb-install mariadb-install-db --user=mysql --datadir=/var/lib/nm-db --auth-root-authentication-method=normal --skip-test-db
bg mariadb mariadbd --defaults-file=/etc/nm/my.cnf
my() { mysql -S /run/mysqld/mysqld.sock -uroot "$@"; }
await mariadb mysqladmin -S /run/mysqld/mysqld.sock -uroot ping
say "MariaDB"
must databases my -e "ALTER USER root@localhost IDENTIFIED BY 'nm'"
for d in keystone placement glance nova_api nova nova_cell0 neutron; do
	must databases my -pnm -e "CREATE DATABASE $d CHARACTER SET utf8"
done
rm -rf /etc/nm/fernet /etc/nm/credential
mkdir -p /etc/nm/fernet /etc/nm/credential
nova="--config-file /etc/nova/nova.conf" neutron="--config-file /etc/neutron/neutron.conf"
(
	must keystone-manage keystone-manage fernet_setup --keystone-user root --keystone-group root
	must keystone-manage keystone-manage credential_setup --keystone-user root --keystone-group root
	must keystone-manage keystone-manage db_sync
	must keystone-manage keystone-manage bootstrap --bootstrap-password admin --bootstrap-admin-url $OS_AUTH_URL \
		--bootstrap-internal-url $OS_AUTH_URL --bootstrap-public-url $OS_AUTH_URL --bootstrap-region-id RegionOne
	must placement-manage placement-manage db sync
	must glance-manage glance-manage db_sync
	must neutron-db-manage neutron-db-manage $neutron upgrade heads
) &
a=$!
(
	must nova-manage nova-manage $nova api_db sync
	must nova-manage nova-manage $nova cell_v2 map_cell0 --database_connection "$(database nova_cell0)"
	must nova-manage nova-manage $nova db sync
	must nova-manage nova-manage $nova cell_v2 create_cell --name cell1
) &
wait $! || exit 1
wait $a || exit 1
say "databases"

wsgi() {
	bg $1 uwsgi_python3 --http-socket 127.0.0.1:$2 --wsgi-file $3 --processes 1 --threads 4 --enable-threads --die-on-term \
		--buffer-size 65535 --disable-logging --add-header 'Connection: close'
}
wsgi keystone 5000 /usr/bin/keystone-wsgi-public
wsgi placement 8778 /usr/bin/placement-api
bg virtlogd virtlogd
bg libvirtd libvirtd
await keystone url http://127.0.0.1:5000/v3
must catalog python3 /nm/catalog.py
await placement url http://127.0.0.1:8778/
say "Keystone, Placement"
await rabbitmq bash -c 'exec 3<>/dev/tcp/127.0.0.1/5672'
bg glance glance-api --config-file /etc/glance/glance-api.conf
bg neutron neutron-server $neutron
bg nova-conductor nova-conductor $nova
bg nova-scheduler nova-scheduler $nova
bg nova-api nova-api $nova
bg nova-compute nova-compute $nova
# Started again, as systemd does: the macvtap agent ends if a port goes as it looks at it.
bg ports sh -c 'until "$@"; do sleep 1; done' sh neutron-$l2-agent $neutron
await glance url http://127.0.0.1:9292/
await neutron url http://127.0.0.1:9696/
await nova-api url http://127.0.0.1:8774/
say "Glance, Neutron, nova-api"
await nova-compute grep -q "Created resource provider record" $L/nova-compute.log
must nova-manage nova-manage $nova cell_v2 discover_hosts
await nova-scheduler python3 /nm/hosts.py 1
say "the scheduler has a host"
"$@"
