# count.sh BUILD regions: makes two regions, each of which stands for a host.
# count.sh BUILD ENV PROGRAM WORD...: runs the program's two ranks, with that variable if it is not empty. After a poll
# without anything a rank yields the vCPU to the other one. Runs as root in the VM of bench-hosts' part count.
set -e
build=$1
bench=$build/test/bench/fabric/c
shift
if [ "$1" = regions ]; then
	for host in 0 1; do "$bench/ucp_bench" region "/dev/shm/region$host" 64; done
	exit
fi
variable=$1
program=$2
shift 2
rm -f /dev/shm/shared
# A library beneath Debian's libfabric leaves a file *.btr here when a rank is ended by a signal.
export IPATH_NO_BACKTRACE=1
for rank in 1 0; do
	# As nearmetal sets it: a queue of rdma_rxe has 32,767 entries at most, 256 a rank.
	METER_RANK=$rank METER_SHARED=/dev/shm/shared METER_YIELD=1 NO_REALTIME=1 FI_UNIVERSE_SIZE=64 \
		FI_PROVIDER_PATH=$build/fabric FI_IVSHMEM_REGION=/dev/shm/region$rank FI_IVSHMEM_CORE='verbs;ofi_rxm' \
		UCX_TLS=rc,self UCX_NET_DEVICES=rxe0:1 UCX_UD_VERBS_ETH_DGID_CHECK=n env ${variable:+"$variable"} "$bench/$program" "$@" &
	last=$!
done
wait $last
