# flavors.py FILE.tf.json...: makes the flavors of plans in this cloud, whose Nova checks each extra spec, and deletes them. What Nova
# has not, it refuses.
import json
import sys
from keystoneauth1 import identity, session

auth = identity.Password(auth_url='http://127.0.0.1:5000/v3', username='admin', password='admin', project_name='admin',
                         user_domain_id='default', project_domain_id='default')
s = session.Session(auth=auth)


def call(method, path, body=None):
    return s.request(path, method, endpoint_filter={'service_type': 'compute'}, json=body, raise_exc=False,
                     headers={'OpenStack-API-Version': 'compute 2.92'})


def make(name, f, specs):
    """Returns what Nova says of a flavor's extra specs."""
    r = call('POST', '/flavors', {'flavor': {'name': name, 'vcpus': f['vcpus'], 'ram': f['ram'], 'disk': 20}})
    id = r.json()['flavor']['id']
    try:
        return call('POST', '/flavors/%s/os-extra_specs' % id, {'extra_specs': specs})
    finally:
        call('DELETE', '/flavors/' + id)


bad = n = 0
for path in sys.argv[1:]:
    with open(path) as file:
        flavors = json.load(file)['resource']['openstack_compute_flavor_v2']
    for f in flavors.values():
        r = make(f['name'], f, f['extra_specs'])
        n += 1
        if r.status_code != 200:
            bad += 1
            print('%s: %s: %d %s' % (path, f['name'], r.status_code, r.text[:300]))
for spec in ({'hw:cpu_dies': '2'}, {'hw:cpu_policy': 'pinned'}, {'hw:numa_nodes': '0'}):
    r = make('wrong', {'vcpus': 2, 'ram': 512}, spec)
    if r.status_code != 400:
        bad += 1
        print('%s was taken: %d' % (spec, r.status_code))
print('%d flavors of %d plans: %d refused' % (n, len(sys.argv) - 1, bad))
sys.exit(bad > 0 or n == 0)
