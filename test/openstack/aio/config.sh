# config.sh: the services' configuration; sourced by up.sh.
database() { echo "mysql+pymysql://root:nm@localhost/$1?unix_socket=/run/mysqld/mysqld.sock&charset=utf8"; }
as_admin="auth_type = password
auth_url = http://127.0.0.1:5000
username = admin
password = admin
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = RegionOne"
tokens="[keystone_authtoken]
www_authenticate_uri = http://127.0.0.1:5000
$as_admin"
broker=rabbit://guest:guest@127.0.0.1:5672/

# Releases from 2025.1 on have no Linux bridges. Their ports are macvtaps of nm-phys in mode bridge: nm-up, its other end, reaches
# the VMs as before, and they each other. Nothing filters there, so that Neutron has no security groups.
l2=linuxbridge groups=true firewall=iptables
[ -e /usr/bin/neutron-linuxbridge-agent ] || l2=macvtap groups=false firewall=noop

cat >/etc/nm/my.cnf <<X
[mysqld]
user = mysql
datadir = /var/lib/nm-db
socket = /run/mysqld/mysqld.sock
skip-networking
innodb_flush_log_at_trx_commit = 0
innodb_flush_method = nosync
innodb_doublewrite = 0
innodb_buffer_pool_size = 128M
max_connections = 400
performance_schema = off
skip-log-bin
transaction_isolation = READ-COMMITTED
X
cat >/etc/keystone/keystone.conf <<X
[DEFAULT]
log_file = /log/keystone.log
[database]
connection = $(database keystone)
[token]
provider = fernet
[fernet_tokens]
key_repository = /etc/nm/fernet
[credential]
key_repository = /etc/nm/credential
[identity]
password_hash_rounds = 4
[cache]
enabled = true
backend = dogpile.cache.memory
X
cat >/etc/placement/placement.conf <<X
[placement_database]
connection = $(database placement)
[api]
auth_strategy = keystone
$tokens
X
cat >/etc/glance/glance-api.conf <<X
[DEFAULT]
bind_host = 127.0.0.1
bind_port = 9292
workers = 0
enabled_backends = file:file
[database]
connection = $(database glance)
[glance_store]
default_backend = file
[file]
filesystem_store_datadir = /var/lib/glance/images
[paste_deploy]
flavor = keystone
config_file = /etc/glance/glance-api-paste.ini
$tokens
X
# Nova reads nova-compute.conf, too.
: >/etc/nova/nova-compute.conf
cat >/etc/nova/nova.conf <<X
[DEFAULT]
my_ip = 127.0.0.1
host = aio
transport_url = $broker
state_path = /var/lib/nova
enabled_apis = osapi_compute
osapi_compute_listen = 127.0.0.1
osapi_compute_workers = 1
compute_driver = libvirt.LibvirtDriver
rootwrap_config = /etc/nova/rootwrap.conf
reserved_host_memory_mb = 0
ram_allocation_ratio = 4
cpu_allocation_ratio = 16
disk_allocation_ratio = 16
allow_resize_to_same_host = true
vif_plugging_timeout = 120
vif_plugging_is_fatal = true
service_down_time = 180
force_raw_images = false
[api]
auth_strategy = keystone
[api_database]
connection = $(database nova_api)
[database]
connection = $(database nova)
[conductor]
workers = 1
[scheduler]
discover_hosts_in_cells_interval = 15
workers = 1
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,NUMATopologyFilter,PciPassthroughFilter,AggregateInstanceExtraSpecsFilter
[compute]
cpu_shared_set = 0-1
[pci]
# The card of simulated hosts: its address is the name.
alias = {"name": "0000-81-00-0", "vendor_id": "8086", "product_id": "1515", "device_type": "type-VF"}
[libvirt]
num_pcie_ports = 16
virt_type = qemu
hw_machine_type = x86_64=q35
images_type = qcow2
inject_partition = -2
[vnc]
enabled = false
[glance]
api_servers = http://127.0.0.1:9292
[cinder]
$as_admin
[service_user]
send_service_user_token = true
$as_admin
[placement]
$as_admin
[neutron]
$as_admin
[oslo_concurrency]
lock_path = /run/nova-lock
[oslo_messaging_notifications]
driver = noop
$tokens
X
cat >/etc/neutron/neutron.conf <<X
[DEFAULT]
bind_host = 127.0.0.1
core_plugin = ml2
service_plugins =
transport_url = $broker
api_workers = 1
rpc_workers = 1
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
global_physnet_mtu = 1500
api_paste_config = /etc/neutron/api-paste.ini
state_path = /var/lib/neutron
[database]
connection = $(database neutron)
[nova]
$as_admin
[placement]
$as_admin
[agent]
root_helper =
[oslo_concurrency]
lock_path = /run/neutron-lock
[ml2]
type_drivers = flat,local,vlan
tenant_network_types = local
mechanism_drivers = $l2,sriovnicswitch
extension_drivers = port_security
[ml2_type_flat]
flat_networks = *
[ml2_type_vlan]
network_vlan_ranges = phys,hpc:100:199
[securitygroup]
enable_security_group = $groups
firewall_driver = $firewall
[experimental]
linuxbridge = true
[linux_bridge]
physical_interface_mappings = phys:nm-phys
[macvtap]
physical_interface_mappings = phys:nm-phys
[vxlan]
enable_vxlan = false
$tokens
X
# libvirtd and QEMU run as Debian has them, but for the user: this root has no udev, which would give devices to another.
sed -i 's/^#*[ ]*\(user\|group\) = .*/\1 = "root"/' /etc/libvirt/qemu.conf
