# left.py: prints what the tenants have in the cloud, a line each; nothing if all is gone. Images of the administrator stay.
from keystoneauth1 import exceptions, identity, session


def cloud(user, project):
    return session.Session(auth=identity.Password(auth_url='http://127.0.0.1:5000/v3', username=user, password=user, project_name=project,
                                                  user_domain_id='default', project_domain_id='default'))


def show(s, service, path, key):
    headers = {'OpenStack-API-Version': 'compute 2.64'}
    for x in s.get(path, endpoint_filter={'service_type': service}, headers=headers).json()[key]:
        x = x.get('keypair', x)
        if not (key == 'security_groups' and x['name'] == 'default'):
            print(key, x['name'], x.get('id', ''))


admin = cloud('admin', 'admin')
show(admin, 'compute', '/servers?all_tenants=1', 'servers')
show(admin, 'network', '/v2.0/ports', 'ports')
try:
    show(admin, 'network', '/v2.0/security-groups', 'security_groups')
except exceptions.NotFound:
    pass  # this Neutron has none
show(admin, 'image', '/v2/images?visibility=private', 'images')
for user, project in (('ann', 'fluids'), ('bob', 'solids')):
    s = cloud(user, project)
    show(s, 'compute', '/os-server-groups', 'server_groups')
    show(s, 'compute', '/os-keypairs', 'keypairs')
    show(s, 'image', '/v2/images?visibility=private', 'images')
