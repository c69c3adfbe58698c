# hosts.py N: succeeds if the scheduler can count on N compute hosts: they have reported, and Placement knows what they have.
import sys
from keystoneauth1 import identity, session

auth = identity.Password(auth_url='http://127.0.0.1:5000/v3', username='admin', password='admin', project_name='admin',
                         user_domain_id='default', project_domain_id='default')
s = session.Session(auth=auth)


def get(service, path):
    return s.get(path, endpoint_filter={'service_type': service}).json()


up = [x for x in get('compute', '/os-services?binary=nova-compute')['services'] if x['state'] == 'up']
providers = get('placement', '/resource_providers')['resource_providers']
ready = [p for p in providers if get('placement', '/resource_providers/%s/inventories' % p['uuid'])['inventories']]
sys.exit(0 if min(len(up), len(ready)) >= int(sys.argv[1]) else 1)
