# four.sh BUILD regions: makes a region and a boot for each of two hosts.
# four.sh BUILD WAY PROGRAM WORD...: runs an MPI program of four ranks, two on each of two hosts. A host is a name space
# with a name, a boot and a region of its own. Runs as root in the VM of bench-hosts' part countfour.
set -e
case $1 in
host) # NAME WORD...: a command on a host
	shift
	exec unshare --uts --mount sh "$0" boot "$@"
	;;
boot) # the same, there
	hostname "$2"
	mount --bind "/run/boot-$2" /proc/sys/kernel/random/boot_id
	shift 2
	exec "$@"
	;;
agent) # NAME TEXT...: as ssh does it
	name=$2
	shift 2
	exec sh "$0" host "$name" sh -c "exec $*"
	;;
rank) # WORD...: a rank
	shift
	export FI_IVSHMEM_REGION="/dev/shm/region-$(hostname)"
	exec "$@"
	;;
esac
build=$1
way=$2
shift 2
if [ "$way" = regions ]; then
	for host in a b; do
		"$build/test/bench/fabric/c/ucp_bench" region "/dev/shm/region-$host" 64
		cat /proc/sys/kernel/random/uuid >"/run/boot-$host"
	done
	exit
fi
# Ranks share the vCPU: one that finds nothing yields it.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_osc=^ucx FI_UNIVERSE_SIZE=64
export OMPI_MCA_oob_tcp_if_include=d0 OMPI_MCA_btl_tcp_if_include=d0 OMPI_MCA_plm_rsh_agent="sh $0 agent"
export IPATH_NO_BACKTRACE=1 # as in count.sh: no file *.btr of a rank that crashes
case $way in
ours | verbs) export OMPI_MCA_pml=cm OMPI_MCA_mtl=^psm OMPI_MCA_mtl_ofi_priority=100 ;;
esac
case $way in
ours) # as nearmetal sets it
	export FI_PROVIDER_PATH="$build/fabric:/usr/lib/x86_64-linux-gnu/libfabric" FI_PROVIDER=ivshmem,verbs,tcp,ofi_rxm
	export FI_IVSHMEM_CORE='verbs;ofi_rxm' FI_OFI_RXM_BUFFER_SIZE=16640 OMPI_MCA_opal_common_ofi_provider_include=ivshmem
	;;
verbs) export OMPI_MCA_opal_common_ofi_provider_include='verbs;ofi_rxm' ;;
tcp) export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp ;;
ucx)
	export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any
	export UCX_TLS=rc,sm,self UCX_NET_DEVICES=rxe0:1 UCX_UD_VERBS_ETH_DGID_CHECK=n
	;;
esac
exec sh "$0" host a mpirun -n 4 --host a:2,b:2 --map-by slot sh "$0" rank "$@"
