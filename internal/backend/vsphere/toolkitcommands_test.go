package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/backend/vsphere/vcsim"
)

// of selects a VM in the toolkit's commands.
const of = " --vm " + toolkitVM

func on(*vcsim.Server) { simVM(toolkitVM).Runtime.PowerState = types.VirtualMachinePowerStatePoweredOn }

var testSwitch = esx.Switch{Name: "sw", PortGroup: "pg", Card: "vmnic4", MTU: 9000}

// commands are the toolkit's commands, with the differences.
var commands = []command{
	{args: "view --networking"},
	{args: "get_vm_config" + of},
	{args: "clone --vm new --template " + vcsim.Template + " --datacenter DC0 --cluster DC0_C0 --host DC0_C0_H0 --datastore LocalDS_0 --cpu 10 --memory 40", theirs: []gap{{"name =", ownNames}, {"spec.config.", sizeLater}}},
	{args: "clone --linked --vm new --template " + vcsim.Template + " --datacenter DC0 --cluster DC0_C0 --host DC0_C0_H0 --cpu 10 --memory 40", theirs: []gap{{"name = new", ownNames}, {"spec.config.", sizeLater}, {"powerOn = true", "a VM is set before it is powered on"}, {"CreateSnapshot_Task", "the template is not changed: one without a snapshot is refused"}}},
	{args: "power --on" + of},
	{args: "power --off" + of, before: on},
	{args: "destroy" + of, before: on},
	{args: "migrate_vm --destination DC0_C0_H1" + of, theirs: []gap{{"RelocateVM_Task", "a VM with a device cannot be moved, and numa.nodeAffinity names nodes of its host"}}},
	{args: "secure_boot --on" + of, before: sized},
	{args: "cpumem --cpu 10 --memory 40 --cores_per_socket 10 --cpu_shares 10000 --memory_shares 409600 --cpu_reservation yes --memory_reservation yes" + of, theirs: []gap{{"shares", sharesNormal}}},
	{args: "latency --level high" + of, before: sized},
	{args: "vm_sched_affinity --affinity 0,1,2" + of, theirs: []gap{{"cpuAffinity", "it would take the VM out of NUMA management"}}},
	{args: "numa_affinity --affinity 0" + of},
	{args: "network --add --port_group DC0_DVPG0" + of, before: func(*vcsim.Server) { cards(toolkitVM, nil) }, theirs: cardsOfToolkit},
	{args: "network_cfg --port_group DC0_DVPG0 --ip 10.77.0.1 --netmask 255.255.0.0 --gateway 10.77.0.254 --dns 10.77.0.253 --domain local --guest_hostname mpi0" + of,
		before: func(*vcsim.Server) { cards(toolkitVM, &types.VirtualVmxnet3{}) }, theirs: customized},
	{args: "network_cfg --port_group DC0_DVPG0 --is_dhcp --netmask 255.255.0.0 --gateway 10.77.0.254 --dns 10.77.0.253 --domain local --guest_hostname mpi0" + of,
		before: func(*vcsim.Server) { cards(toolkitVM, &types.VirtualVmxnet3{}) }, theirs: customized},
	{args: "passthru --add --device 0000:3b:00.1" + of, before: sized, theirs: []gap{{"device.key", key}}},
	{args: "passthru --add --dynamic --device 0000:3b:00.1" + of, before: sized, theirs: []gap{{"device.key", key}}},
	{args: "sriov --add --pf 0000:3b:00.0 --sriov_port_group DC0_DVPG0 --sriov_dvs_name DVS0 --allow_guest_mtu_change" + of, before: sized, theirs: []gap{{"device.key", key}, {"addressType", ownMAC}, {"wakeOnLanEnabled", wake}}},
	{args: "pvrdma --add --pvrdma_port_group DC0_DVPG0 --dvs_name DVS0" + of, before: func(*vcsim.Server) { cards(toolkitVM, nil) }, theirs: []gap{{"device.key", key}, {"addressType", ownMAC}, {"deviceInfo.label", "vCenter names devices itself"}, {"memoryAllocation.reservation = 32", "the size of this VM"}}},
	{args: "vgpu --add --profile " + vcsim.VGPU + of, before: sized, theirs: []gap{{"device.key", key}}},
	{args: "post --guest_username root --guest_password guest-pass-word --script FILE" + of, guest: true, file: "#!/bin/sh\nexit 0\n", before: guestOn,
		theirs: []gap{{"fileSize", ownScript}, {"guestFilePath", ownName}, {"spec.arguments", "nearmetal exec brings what a program prints; a log in the guest nobody reads"}},
		mine: []gap{{"DeleteFileInGuest", "nothing stays in the guest"}, {"InitiateFileTransferFromGuest", "the guest's host keys, which ssh compares"}, {"fileAttributes", "others in the guest cannot read it"},
			{"fileSize", ownScript}, {"guestFilePath", ownName}, {"spec is a GuestProgramSpec", "both clients may say the type, which is the declared one"}, {"spec.arguments", ownScript}}},
	{args: "passthru_host --on --device 0000:3b:00.1 --host DC0_C0_H0",
		before: func(s *vcsim.Server) {
			Part{}.SetPassthru(context.Background(), s.Host, []string{"0000:3b:00.1"}, false)
		},
		ours: func(ctx context.Context, p Part, host string) error {
			_, _, err := p.SetPassthru(ctx, host, []string{"0000:3b:00.1"}, true)
			return err
		}, mine: []gap{{"is a HostPciPassthruConfig", "both clients may say the type, which is the declared one"}, {"applyNow", "without a boot, where ESXi can"}}},
	{args: "passthru_host --off --device 0000:3b:00.1 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, _, err := p.SetPassthru(ctx, host, []string{"0000:3b:00.1"}, false)
		return err
	}, mine: []gap{{"is a HostPciPassthruConfig", "both clients may say the type, which is the declared one"}, {"applyNow", "without a boot, where ESXi can"}}},
	{args: "sriov_host --on --num_func 8 --device 0000:3b:00.0 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, _, err := p.SetVFs(ctx, host, []string{"0000:3b:00.0"}, 8)
		return err
	}},
	{args: "sriov_host --off --device 0000:3b:00.0 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, _, err := p.SetVFs(ctx, host, []string{"0000:3b:00.0"}, 0)
		return err
	}},
	{args: "power_policy --policy 2 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, _, err := p.Power(ctx, host, "balanced")
		return err
	}},
	{args: "svs --create --name sw --pnic vmnic4 --port_group pg --mtu 9000 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, err := p.SVS(ctx, host, testSwitch, false)
		return err
	}, theirs: []gap{{"security", "MPI needs neither promiscuous mode nor forged addresses: the switch keeps ESXi's own policy"}, {"numPorts = 8", ports}},
		mine: []gap{{"numPorts = 128", ports}}},
	{args: "svs --destroy --name sw --port_group pg --host DC0_C0_H0", before: func(s *vcsim.Server) { Part{}.SVS(context.Background(), s.Host, testSwitch, false) },
		ours: func(ctx context.Context, p Part, host string) error {
			_, err := p.SVS(ctx, host, testSwitch, true)
			return err
		}},
	{args: "dvs --create --name sw --datacenter DC0 --pnic vmnic4 --port_group pg --mtu 9000 --host DC0_C0_H0", ours: func(ctx context.Context, p Part, host string) error {
		_, err := p.DVS(ctx, []string{host}, testSwitch, false)
		return err
	}, theirs: []gap{{"spec.numPorts = 1", ports}, {"numStandalonePorts", "VMs get ports of the port group"}, {"AddDVPortgroup_Task spec.policy", "no port has settings of its own: nothing overrides any"},
		{"CreateDVS_Task spec.configSpec.defaultPortConfig", uplinksOfGroup}, {"lacpApiVersion", "no host joins its cards to one link"}},
		mine: []gap{{"spec.numPorts = 128", ports}, {"description", marks}, {"AddDVPortgroup_Task spec.defaultPortConfig.uplinkTeamingPolicy", uplinksOfGroup},
			{"AddDVPortgroup_Task spec.defaultPortConfig.vlan", "--vlan"}, {"AddDVPortgroup_Task spec.defaultPortConfig is", uplinksOfGroup}, {"uplinkPortPolicy", "the toolkit names its uplinks in a list that it does not send"}}},
	{args: "dvs --destroy --name sw", before: func(s *vcsim.Server) { Part{}.DVS(context.Background(), []string{s.Host}, testSwitch, false) },
		ours: func(ctx context.Context, p Part, host string) error {
			_, err := p.DVS(ctx, []string{host}, testSwitch, true)
			return err
		}},
	{args: "cluster --create --file FILE", file: toolkitCluster, before: func(*vcsim.Server) {
		efi(vcsim.Template)
		cards(vcsim.Template, nil)
	}, theirs: []gap{{"CloneVM_Task name", ownNames}, {"spec.config.", sizeLater}, {"CustomizeVM_Task spec.nicSettingMap.adapter.dnsDomain", dnsDomain}, {"CustomizeVM_Task spec.nicSettingMap.macAddress", firstCardOnly},
		{"device.key", key}, {"addressType", ownMAC}, {"wakeOnLanEnabled", wake}, {"status = untried", untried}}},
}

// toolkitCluster is a cluster file for the toolkit.
const toolkitCluster = `[BASE]
template: ` + vcsim.Template + `
datacenter: DC0
cluster: DC0_C0
host: DC0_C0_H0
datastore: LocalDS_0
cpu: 10
memory: 40
port_group: DC0_DVPG0
ip: 10.77.0.1
netmask: 255.255.0.0
gateway: 10.77.0.254
dns: ['10.77.0.253']
domain: local
guest_hostname: mpi0
[_VMS_]
mpi0: BASE cores_per_socket:10 cpu_reservation:true memory_reservation:true latency:high device:['0000:3b:00.1'] sriov_port_group:DC0_DVPG0 sriov_dvs_name:DVS0 pf:0000:3b:00.0 allow_guest_mtu_change:true power:on
`

// Reasons that several commands share.
const (
	ownNames       = "a name has 64 random bits, by which the VM is known after a crash"
	sizeLater      = "simulators leave out what a clone's call sets: nearmetal sets it in the call after it"
	ownScript      = "nearmetal runs one script of its own, which lets ssh in; a user's programs go by nearmetal exec"
	ownName        = "a name with 64 random bits, since a home may be shared between VMs"
	sharesNormal   = "VMs have their CPUs and memory reserved: shares stay normal"
	key            = "a number of the client's own, which vCenter replaces; the API's documents say: negative"
	ownMAC         = "VMs are known by MAC addresses: the first card has a chosen one, and others vCenter's default"
	wake           = "nobody wakes these VMs over the network"
	untried        = "vCenter's own to say: what a client sends is ignored"
	dnsDomain      = "the name's own domain is set; a search domain for each card is not"
	firstCardOnly  = "nearmetal's settings are in the order of the cards, and have all of them"
	ports          = "room for 128 VMs, and not 8 or 1"
	uplinksOfGroup = "the order of uplinks is set on the port group, which hosts use; the toolkit sets it on the switch"
	marks          = "the mark of what is nearmetal's"
)

var (
	cardsOfToolkit = []gap{{"addressType", ownMAC}, {"status = untried", untried}, {"device.key", key}, {"wakeOnLanEnabled", wake}}
	customized     = []gap{{"dnsDomain", dnsDomain}, {"macAddress", firstCardOnly}}
)

// ofVMs are the calls for VMs that only nearmetal makes.
var ofVMs = []gap{
	{"CloneVM_Task name", ownNames},
	{"annotation", marks},
	{"nearmetal.mark", marks},
	{"Allocation.limit", "vCenter replaces an allocation as a whole: what is not sent would be lost, not kept"},
	{"Allocation.shares", "as the limit"},
	{"cpuHotAddEnabled", "hot-add would turn the VM's NUMA nodes off"},
	{"firmware", "windows of whole functions need EFI; the toolkit warns only"},
	{"device.key = -", key},
	{"[edit VirtualE1000]", "the template's own card is used, as it was read; the toolkit adds another"},
	{"addressType = manual", ownMAC},
	{"macAddress", ownMAC},
}
