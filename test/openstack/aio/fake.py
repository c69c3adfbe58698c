# fake.py NAME NODES CORES THREADS GIB CARD: the real nova-compute of a host that is simulated, by the stand-in for libvirt of
# Nova's own tests. It has a card with 8 virtual functions on node CARD. Each domain that it would start is in
# /log/xml/NAME.SERVER.xml.
import io
import os
import re
import sys

name, nodes, cores, threads, gib, card = sys.argv[1], *map(int, sys.argv[2:])
total = nodes * cores * threads
state, config = '/var/lib/nova/' + name, '/etc/nova/%s.conf' % name
os.makedirs(state + '/instances', exist_ok=True)
os.makedirs('/log/xml', exist_ok=True)
# One thread of each core, as docs/openstack.md asks for.
shared = 'cpu_shared_set = %s\n' % (1 if threads > 1 else '')  # nova.conf has the real host's
with open(config, 'w') as f:
    f.write('''[DEFAULT]
host = %s
state_path = %s
instances_path = %s/instances
[compute]
%scpu_dedicated_set = %s
[libvirt]
virt_type = kvm
cpu_mode = none
[pci]
device_spec = {"vendor_id": "8086", "product_id": "1515"}
''' % (name, state, state, shared, ','.join(str(c) for c in range(0, total, threads))))
sys.argv = ['nova-compute', '--config-file', '/etc/nova/nova.conf', '--config-file', config]

import fixtures
from nova.cmd import compute
from nova.tests.fixtures import libvirt, libvirt_imagebackend, os_brick
from nova.virt.libvirt import guest


def use(f):
    f.setUp()
    return f


stand_in = use(libvirt.LibvirtFixture())
use(libvirt_imagebackend.LibvirtImageBackendFixture())
use(os_brick.OSBrickFixture())
for what, how in [
        ('nova.virt.libvirt.LibvirtDriver._create_image', dict(return_value=(False, False))),
        ('nova.virt.libvirt.LibvirtDriver._get_local_gb_info', dict(return_value={'total': 1280, 'used': 44, 'free': 840})),
        ('nova.virt.libvirt.driver.libvirt_utils.is_valid_hostname', dict(return_value=True)),
        ('nova.virt.libvirt.driver.libvirt_utils.file_open', dict(side_effect=lambda *a, **k: io.BytesIO(b''))),
        ('nova.privsep.utils.supports_direct_io', dict(return_value=True)),
        ('nova.virt.libvirt.host.Host.get_online_cpus', dict(return_value=set(range(total))))]:
    use(fixtures.MockPatch(what, **how))


def pages(size, count):
    p = libvirt.vconfig.LibvirtConfigCapsNUMAPages()
    p.size, p.total = size, count
    return p


kb = gib << 20
info = libvirt.HostInfo(cpu_nodes=nodes, cpu_sockets=1, cpu_cores=cores, cpu_threads=threads, kB_mem=kb,
                        mempages={n: [pages(4, kb // nodes // 4), pages(2048, 0)] for n in range(nodes)})
info.kB_mem = kb >> 10  # what getInfo() says is in MiB
functions = libvirt.HostPCIDevicesInfo(num_pfs=1, num_vfs=8, numa_node=card)
stand_in.update_sriov_mac_address_mapping(functions.get_pci_address_mac_mapping())
connection = libvirt.Connection('qemu:///system', version=libvirt.FAKE_LIBVIRT_VERSION, hv_version=libvirt.FAKE_QEMU_VERSION,
                                host_info=info, pci_info=functions, hostname=name)
use(fixtures.MockPatch('nova.virt.libvirt.host.Host.get_connection', return_value=connection))
real = guest.Guest.create.__func__


def create(cls, xml, host):
    text = xml.decode() if isinstance(xml, bytes) else xml
    with open('/log/xml/%s.%s.xml' % (name, re.search('<nova:name>(.*?)</nova:name>', text).group(1)), 'w') as f:
        f.write(text)
    return real(cls, xml, host)


guest.Guest.create = classmethod(create)
compute.main()
