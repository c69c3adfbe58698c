# Has Nova's own code place servers on compute hosts, one after the other, as its scheduler and its compute manager do.
# Standard input: [{"host": {"cells": [...], "devices": [...]}, "vms": [...]}, ...] of placement_test.go. Output: for each of
# them a list with, for each VM, the host's CPU of each vCPU, or why Nova finds no place.
import itertools
import json
import sys
import types

from nova import conf, objects
from nova.objects import fields
from nova.pci import stats
from nova.virt import hardware

conf.CONF([], project="nova")
objects.register_all()

ORDERS = 2000  # of host nodes that Nova may try for one server


class TooMany(Exception):
    pass


def permutations(*args):
    for n, p in enumerate(itertools.permutations(*args)):
        if n == ORDERS:
            raise TooMany
        yield p


hardware.itertools = types.SimpleNamespace(**{**vars(itertools), "permutations": permutations})


def cell(c):
    return objects.NUMACell(
        id=c["id"], socket=c["socket"], cpuset=set(), pcpuset=set(c["cpus"]), pinned_cpus=set(), cpu_usage=0,
        memory=c["mib"], memory_usage=0, siblings=[set(s) for s in c["siblings"]],
        mempages=[objects.NUMAPagesTopology(size_kb=int(k), total=n, used=0, reserved=0)
                  for k, n in sorted(c["pages"].items(), key=lambda p: int(p[0]))],
        network_metadata=objects.NetworkMetadata(physnets=set(), is_tunneled=False))


def answer(asked):
    host = objects.NUMATopology(cells=[cell(c) for c in asked["host"]["cells"]])
    devices = asked["host"]["devices"]
    cards = stats.PciDeviceStats(host)
    numbers = {d["pf"]: "%04x" % (i + 1) for i, d in enumerate(devices)}
    cards.pools = [{"vendor_id": "8086", "product_id": numbers[d["pf"]], "dev_type": fields.PciDeviceType.SRIOV_VF,
                    "numa_node": None if d["node"] < 0 else d["node"], "count": d["count"]} for d in devices]
    places = []
    for vm in asked["vms"]:
        flavor = objects.Flavor(name="f", vcpus=vm["vcpus"], memory_mb=vm["mib"], root_gb=1, extra_specs=vm["specs"])
        wanted = hardware.numa_get_constraints(flavor, objects.ImageMeta.from_dict({"properties": vm["image"] or {}}))
        requests = [objects.InstancePCIRequest(
            count=1, request_id=None, requester_id=None, alias_name=None,
            numa_policy=vm["specs"].get("hw:pci_numa_affinity_policy"),
            spec=[{"vendor_id": "8086", "product_id": numbers[p], "dev_type": fields.PciDeviceType.SRIOV_VF} for p in pfs])
            for pfs in vm["pfs"]]
        try:
            got = hardware.numa_fit_instance_to_host(host, wanted, None, pci_requests=requests, pci_stats=cards)
        except ValueError as e:
            places.append({"why": "Nova's code fails: %s" % e})
            continue
        except TooMany:
            places.append({"why": "none of %d orders of nodes fits" % ORDERS})
            continue
        if got is None:
            places.append({"why": "no place"})
            continue
        if requests:
            cards.apply_requests(requests, None, got.cells)
        host = hardware.numa_usage_from_instance_numa(host, got)
        pins = {}
        for c in got.cells:
            pins.update(c.cpu_pinning or {})
        places.append({"cpus": [pins[v] for v in sorted(pins)]})
    return places


print(json.dumps([answer(a) for a in json.load(sys.stdin)]))
