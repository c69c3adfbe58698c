# image.py KERNEL INITRD DISK: uploads them to Glance; makes the tenants' network.
import sys
from keystoneauth1 import identity, session

auth = identity.Password(auth_url='http://127.0.0.1:5000/v3', username='admin', password='admin', project_name='admin',
                         user_domain_id='default', project_domain_id='default')
s = session.Session(auth=auth)


def image(name, path, kind, **properties):
    to = {'service_type': 'image'}
    i = s.post('/v2/images', endpoint_filter=to, json=dict(name=name, disk_format=kind, visibility='public',
               container_format=kind if kind in ('aki', 'ari') else 'bare', **properties)).json()
    with open(path, 'rb') as f:
        s.put('/v2/images/%s/file' % i['id'], endpoint_filter=to, data=f, headers={'Content-Type': 'application/octet-stream'})
    return i['id']


kernel, initrd, disk = sys.argv[1:]
parts = dict(kernel_id=image('debian-kernel', kernel, 'aki'), ramdisk_id=image('debian-initrd', initrd, 'ari'))
# As nearmetal's own emulated VMs, but for the time that systemd waits: the host may be busy.
line = 'root=/dev/vda ro console=ttyS0 net.ifnames=0 mitigations=off cryptomgr.notests rodata=off audit=0 lsm= random.trust_cpu=on'
image('debian', disk, 'qcow2', min_disk=2, os_command_line=line + ' systemd.default_timeout_start_sec=900', hw_rng_model='virtio', **parts)
to = {'service_type': 'network'}
n = s.post('/v2.0/networks', endpoint_filter=to, json={'network': {'name': 'private', 'shared': True, 'provider:network_type': 'flat',
           'provider:physical_network': 'phys'}}).json()['network']['id']
s.post('/v2.0/subnets', endpoint_filter=to, json={'subnet': {'network_id': n, 'ip_version': 4, 'cidr': '10.77.0.0/24',
       'enable_dhcp': False, 'gateway_ip': '10.77.0.1', 'allocation_pools': [{'start': '10.77.0.10', 'end': '10.77.0.250'}]}})
