# catalog.py: the services' addresses; two projects, each with a user who is not an administrator.
from keystoneauth1 import identity, session
from keystoneclient.v3 import client

auth = identity.Password(auth_url='http://127.0.0.1:5000/v3', username='admin', password='admin', project_name='admin',
                         user_domain_id='default', project_domain_id='default')
k = client.Client(session=session.Session(auth=auth))
for name, kind, url in [('placement', 'placement', 'http://127.0.0.1:8778'), ('glance', 'image', 'http://127.0.0.1:9292'),
                        ('neutron', 'network', 'http://127.0.0.1:9696'), ('nova', 'compute', 'http://127.0.0.1:8774/v2.1')]:
    s = k.services.create(name, type=kind)
    for interface in ('public', 'internal', 'admin'):
        k.endpoints.create(s, url, interface=interface, region='RegionOne')
roles = {r.name: r for r in k.roles.list()}
service = roles.get('service') or k.roles.create('service')
k.roles.grant(service, user=k.users.find(name='admin'), project=k.projects.find(name='admin'))
for project, user in [('fluids', 'ann'), ('solids', 'bob')]:
    p = k.projects.create(project, 'default')
    k.roles.grant(roles['member'], user=k.users.create(user, domain='default', password=user, default_project=p), project=p)
