# device.sh: makes the RDMA device of the VM of bench-hosts' parts count and countfour, as root there.
set -e
modprobe dummy
modprobe rdma_rxe
ip link add d0 type dummy
ip address add 10.9.0.1/24 dev d0
ip link set d0 mtu 4200 up # RDMA messages of 4 KiB in a packet
rdma link add rxe0 type rxe netdev d0
