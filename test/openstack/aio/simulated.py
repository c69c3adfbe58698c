# simulated.py: where Nova's scheduler and two simulated hosts put the VMs of cluster files, beside their plans: the rows of
# measurements/openstack-scheduler.md.
import json
import os
import re
import subprocess
import sys
import time
from keystoneauth1 import identity, session

near = [[10, 21], [21, 10]]
far = [[10, 12, 17, 17, 19, 19, 19, 19], [12, 10, 17, 17, 19, 19, 19, 19], [17, 17, 10, 12, 19, 19, 19, 19],
       [17, 17, 12, 10, 19, 19, 19, 19], [19, 19, 19, 19, 10, 12, 17, 17], [19, 19, 19, 19, 12, 10, 17, 17],
       [19, 19, 19, 19, 17, 17, 10, 12], [19, 19, 19, 19, 17, 17, 12, 10]]
# nodes, cores of each, threads, distances, node of the card
hosts = {'two': (2, 8, 2, near, 1), 'eight': (8, 16, 1, far, 3)}
# name, hosts, VMs, vCPUs, GiB, placement; a name that ends in -vf: each VM has a virtual function
files = [('two-1x4', 'two', 1, 4, 4, ''), ('two-1x8', 'two', 1, 8, 8, ''), ('two-1x12', 'two', 1, 12, 12, ''), ('two-1x16', 'two', 1, 16, 16, ''),
         ('two-2x4', 'two', 2, 4, 4, ''), ('two-2x8', 'two', 2, 8, 8, ''), ('two-4x4', 'two', 4, 4, 4, ''), ('two-8-spread', 'two', 1, 8, 8, 'policy: spread'),
         ('eight-1x16', 'eight', 1, 16, 16, ''), ('eight-1x32', 'eight', 1, 32, 32, ''), ('eight-1x48', 'eight', 1, 48, 48, ''),
         ('eight-1x64', 'eight', 1, 64, 64, ''), ('eight-1x128', 'eight', 1, 128, 128, ''), ('eight-2x32', 'eight', 2, 32, 32, ''),
         ('eight-2x48', 'eight', 2, 48, 48, ''), ('eight-4x32', 'eight', 4, 32, 32, ''), ('eight-32-spread', 'eight', 1, 32, 32, 'policy: spread'),
         ('both-2x8', 'two eight', 2, 8, 8, ''), ('both-2x16', 'two eight', 2, 16, 16, ''), ('both-pack', 'two eight', 3, 8, 8, 'hostPolicy: pack'),
         ('eight-pack', 'two eight', 3, 8, 8, 'hostPolicy: pack'),
         ('two-1x4-vf', 'two', 1, 4, 4, ''), ('two-1x12-vf', 'two', 1, 12, 12, ''), ('two-2x8-vf', 'two', 2, 8, 8, ''),
         ('two-4x4-vf', 'two', 4, 4, 4, ''), ('eight-1x16-vf', 'eight', 1, 16, 16, ''), ('eight-1x32-vf', 'eight', 1, 32, 32, ''),
         ('eight-1x64-vf', 'eight', 1, 64, 64, ''), ('eight-2x16-vf', 'eight', 2, 16, 16, ''), ('eight-4x16-vf', 'eight', 4, 16, 16, ''),
         ('both-2x8-vf', 'two eight', 2, 8, 8, '')]
card = """devices:
  - {address: "0000:81:00.0", root: "pci0000:80", port: "0000:80:01.0", class: 0x020700, vendor: 0x15b3, device: 0x101b, driver: mlx5_core, node: %d, group: 40, net: [ib0],
     rdma: [mlx5_0], barKiB: [65536], totalVFs: 8, vfDevice: 0x101c, vfDriver: vfio-pci, vfs: [%s]}
"""
functions = ', '.join('"0000:81:%02x.%d"' % (n // 8, n % 8) for n in range(1, 9))

auth = identity.Password(auth_url='http://127.0.0.1:5000/v3', username='admin', password='admin', project_name='admin',
                         user_domain_id='default', project_domain_id='default')
s = session.Session(auth=auth)


def call(method, path, body=None):
    r = s.request(path, method, endpoint_filter={'service_type': 'compute'}, json=body, raise_exc=False,
                  headers={'OpenStack-API-Version': 'compute 2.92'})
    if r.status_code >= 400:
        raise RuntimeError('%s %s: %s' % (method, path, r.text[:300]))
    return r.json() if r.text else None


def glance(method, path, **kw):
    return s.request(path, method, endpoint_filter={'service_type': 'image'}, **kw)


def vf(file):
    return file[0].endswith('-vf')


def plan(file, *more):
    names = file[1].split()
    with open('c.yaml', 'w') as f:
        f.write('name: %s\nroot: backend\nvms: [{name: vm, count: %d, vcpus: %d, memory: %dGiB%s}]\n' %
                (file[0], file[2], file[3], file[4], ', devices: [{class: infiniband}]' if vf(file) else ''))
        if file[5]:
            f.write('placement: {%s}\n' % file[5])
    args = ['/build/nearmetal', 'plan', '--on', 'openstack', '-f', 'c.yaml', *more]
    for n in names:
        args += ['--host', n + '.machine']
    return json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)


def cost(file, host, nodes):
    _, _, _, distances, card = hosts[host]
    costs = [max(distances[a][b] for a in nodes for b in nodes), len(nodes)]
    return costs + [max(distances[a][card] for a in nodes)] if vf(file) else costs


def text(file, places):
    """places: (host, nodes) of each VM."""
    at = '; '.join('%s %s' % (h, ','.join(map(str, n))) for h, n in places)
    return '%s | %s' % (at, ' / '.join(map(str, max(cost(file, h, n) for h, n in places))))


def wait(id):
    while True:
        v = call('GET', '/servers/' + id)['server']
        if v['status'] != 'BUILD':
            return v
        time.sleep(0.3)


def nodes_of(host, name, functions):
    with open('/log/xml/%s.%s.xml' % (host, name)) as f:
        xml = f.read()
    if xml.count('<hostdev ') != functions:
        raise RuntimeError('%s has %d functions' % (name, xml.count('<hostdev ')))
    cpus = [int(c) for c in re.findall(r"<vcpupin vcpu=['\"]\d+['\"] cpuset=['\"](\d+)['\"]", xml)]
    _, cores, threads, _, _ = hosts[host]
    return sorted({c // (cores * threads) for c in cpus})


os.chdir('/root')
for name, (n, cores, threads, distances, node) in hosts.items():
    with open(name + '.machine', 'w') as f:
        f.write('name: %s\nvendor: GenuineIntel\nmodel: simulated\npackages: %d\ncoresPerNode: %d\nthreads: %d\nl1KiB: 32\nl2KiB: 1024\n'
                'l3KiB: 22528\nmemoryMiB: 32768\ndistances: %s\n' % (name, n, cores, threads, json.dumps(distances)))
        f.write(card % (node, functions))
i = glance('POST', '/v2/images', json={'name': 'empty', 'disk_format': 'raw', 'container_format': 'bare'}).json()['id']
glance('PUT', '/v2/images/%s/file' % i, data=b'\0' * 1024, headers={'Content-Type': 'application/octet-stream'})
project = s.get_project_id()
call('PUT', '/os-quota-sets/' + project, {'quota_set': {'cores': -1, 'ram': -1, 'instances': -1, 'force': True}})
for file in [f for f in files if not sys.argv[1:] or f[0] in sys.argv[1:]]:
    p, want = plan(file, '--format', 'json'), plan(file, '--format', 'openstack-json')
    ours = [(v['host'], sorted({h for n in v['nodes'] for h in n['hostNodes']})) for v in p['vms']]
    flavors, made, novas, group = {}, [], [], None
    for f in want['flavors']:
        flavors[f['name']] = call('POST', '/flavors', {'flavor': {'name': f['name'], 'vcpus': f['vcpus'], 'ram': f['ramMiB'], 'disk': 1}})['flavor']['id']
        call('POST', '/flavors/%s/os-extra_specs' % flavors[f['name']], {'extra_specs': f['extraSpecs']})
    if want.get('serverGroup'):
        group = call('POST', '/os-server-groups', {'server_group': want['serverGroup']})['server_group']['id']
    for v in want['servers']:
        ask = {'name': v['name'], 'flavorRef': flavors[v['flavor']], 'imageRef': i, 'networks': 'none'}
        if not file[0].startswith('both'):
            ask['host'] = file[0].split('-')[0]  # the scheduler has to agree
        body = {'server': ask}
        if group:
            body['os:scheduler_hints'] = {'group': group}
        made.append(call('POST', '/servers', body)['server']['id'])
        got = wait(made[-1])
        if got['status'] != 'ACTIVE':
            print('fault of %s: %s' % (v['name'], got.get('fault', {}).get('message')), file=sys.stderr)
            novas = None
            break
        host = got['OS-EXT-SRV-ATTR:host']
        novas.append((host, nodes_of(host, v['name'], vf(file))))
    print('| `%s` | %s | %s |' % (file[0], text(file, ours), text(file, novas) if novas else 'no place |'), flush=True)
    for id in made:
        call('DELETE', '/servers/' + id)
    while call('GET', '/servers')['servers']:
        time.sleep(0.3)
    for id in flavors.values():
        call('DELETE', '/flavors/' + id)
    if group:
        call('DELETE', '/os-server-groups/' + group)
