#!/usr/bin/env python3
"""nodes.py PREFIX CONF: adds the servers whose names begin with PREFIX to CONF, a slurm.conf, in place of those that it has,
and writes topology.conf beside it. Servers with the same hostId are on one host, and so below one switch. It asks the openstack
client, with the rights of a tenant. Say it again when a server was made, deleted or moved, then `scontrol reconfigure`."""
import collections
import json
import os
import subprocess
import sys

MARK = '# -- by nodes.py'


def client(*args):
    return json.loads(subprocess.run(['openstack', *args, '-f', 'json'], check=True, capture_output=True, text=True).stdout)


def main(prefix, conf):
    lines, hosts = [], collections.defaultdict(list)
    for s in client('server', 'list', '--name', '^' + prefix):
        v = client('server', 'show', s['ID'])
        f = client('flavor', 'show', s['Flavor'])
        address = [a for net in v['addresses'].values() for a in net][0]
        # A kernel keeps some memory for itself.
        lines.append('NodeName=%s NodeAddr=%s CPUs=%d RealMemory=%d State=UNKNOWN' % (v['name'], address, f['vcpus'], f['ram'] * 4 // 5))
        hosts[v['hostId']].append(v['name'])
    if not lines:
        sys.exit('nodes.py: the project has no server %s…' % prefix)
    with open(conf) as f:
        text = f.read().split(MARK)[0]
    switches = ['SwitchName=host%d Nodes=%s' % (i, ','.join(sorted(names))) for i, (_, names) in enumerate(sorted(hosts.items()))]
    switches.append('SwitchName=top Switches=host[0-%d]' % (len(hosts) - 1))
    for path, content in ((conf, text + '\n'.join([MARK, *sorted(lines)])), (os.path.join(os.path.dirname(conf), 'topology.conf'), '\n'.join(switches))):
        with open(path + '.new', 'w') as f:
            f.write(content + '\n')
        os.rename(path + '.new', path)


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
