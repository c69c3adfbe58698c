package importer

import (
	"strings"
	"sync"

	"nearmetal/internal/lazyregexp"
)

// form is the shape of a test's table: its columns, and which of them are results.
type form int

const (
	formLatency    form = iota // size, latency
	formBandwidth              // size, bandwidth
	formRates                  // size, bandwidth and, optionally, message rate
	formRate                   // size, message rate
	formOverlap                // size, times of a nonblocking call and its overlap
	formBar                    // formLatency without sizes
	formOverlapBar             // formOverlap without sizes
	formNone                   // no parsed table: see refused for the reason
)

// refused is the reason why the output of the titles of formNone is not parsed.
const refused = "has no table of message sizes, which is what is read"

// osuTitles are the titles of the OSU micro-benchmarks 5.0 to 7.5 and of the version after them, without the
// accelerator that may follow the word MPI, NCCL or RCCL, or the name of a call: "OSU MPI-CUDA Latency Test". The
// names after a title are those of the programs that print it, without osu_: several have the same one by mistake.
var osuTitles = map[form]string{
	formLatency: `
OSU MPI Latency Test: latency
OSU MPI Latency Test Test: latency
OSU MPI Latency Persistent Test: latency_persistent
OSU MPI Latency Test Persistent: latency_persistent
OSU MPI Multi Latency Test: multi_lat
OSU MPI Multi Latency Test Test: multi_lat
OSU MPI Multi-threaded Latency Test: latency_mt
OSU MPI Multi-process Latency Test: latency_mp
OSU MPI_Put Latency Test: put_latency
OSU MPI_Get latency Test: get_latency
OSU MPI_Accumulate latency Test: acc_latency
OSU MPI_Compare_and_swap latency Test: cas_latency
OSU MPI_Fetch_and_op latency Test: fop_latency
OSU MPI_Get_accumulate latency Test: get_acc_latency
OSU MPI All-to-All Personalized Exchange Latency Test: alltoall
OSU MPI All-to-Allv Personalized Exchange Latency Test: alltoallv
OSU MPI All-to-Allw Personalized Exchange Latency Test: alltoallw neighbor_alltoallw
OSU MPI Allgather Latency Test: allgather
OSU MPI Allgatherv Latency Test: allgatherv
OSU MPI Allreduce Latency Test: allreduce
OSU MPI Broadcast Latency Test: bcast
OSU MPI Gather Latency Test: gather
OSU MPI Gatherv Latency Test: gatherv
OSU MPI Reduce Latency Test: reduce
OSU MPI Reduce_scatter Latency Test: reduce_scatter
OSU MPI Reduce_scatter_block Latency Test: reduce_scatter_block
OSU MPI Scatter Latency Test: scatter
OSU MPI Scatterv Latency Test: scatterv
OSU MPI All-to-All Personalized Exchange Persistent Latency Test: alltoall_persistent
OSU MPI All-to-Allv Personalized Exchange Persistent Latency Test: alltoallv_persistent
OSU MPI All-to-Allw Personalized Exchange Persistent Latency Test: alltoallw_persistent
OSU MPI Allgather Persistent Latency Test: allgather_persistent
OSU MPI Allgatherv Persistent Latency Test: allgatherv_persistent
OSU MPI Allreduce Persistent Latency Test: allreduce_persistent
OSU MPI Broadcast Persistent Latency Test: bcast_persistent
OSU MPI Gather Persistent Latency Test: gather_persistent
OSU MPI Gatherv Persistent Latency Test: gatherv_persistent
OSU MPI Reduce Persistent Latency Test: reduce_persistent
OSU MPI Reduce_scatter Persistent Latency Test: reduce_scatter_persistent
OSU MPI Reduce_scatter_block Persistent Latency Test: reduce_scatter_block_persistent
OSU MPI Scatter Persistent Latency Test: scatter_persistent
OSU MPI Scatterv Persistent Latency Test: scatterv_persistent
OSU MPI Neighbor Allgather Latency Test: neighbor_allgather
OSU MPI Neighbor Allgatherv Latency Test: neighbor_allgatherv
OSU MPI Neighbor Alltoall Latency Test: neighbor_alltoall
OSU MPI Neighbor All-to-Allv Latency Test: neighbor_alltoallv
OSU MPI Neighborhood Allgather Latency Test: neighbor_allgather
OSU MPI Neighborhood Allgatherv Latency Test: neighbor_allgatherv
OSU MPI Neighborhood Alltoall Latency Test: neighbor_alltoall
OSU MPI Neighborhood All-to-All Latency Test: neighbor_alltoall
OSU MPI Neighborhood All-to-Allv Latency Test: neighbor_alltoallv
OSU MPI Neighborhood All-to-Allw Latency Test: neighbor_alltoallw
OSU NCCL Latency Test: nccl_latency
OSU NCCL All-to-All Personalized Exchange Latency Test: nccl_alltoall
OSU NCCL Allgather Latency Test: nccl_allgather
OSU NCCL Allreduce Latency Test: nccl_allreduce
OSU NCCL Broadcast Latency Test: nccl_bcast
OSU NCCL Reduce Latency Test: nccl_reduce
OSU NCCL Reduce_scatter Latency Test: nccl_reduce_scatter
OSU RCCL Latency Test: rccl_latency
OSU RCCL All-to-All Personalized Exchange Latency Test: rccl_alltoall
OSU RCCL Allgather Latency Test: rccl_allgather
OSU RCCL Allreduce Latency Test: rccl_allreduce
OSU RCCL Broadcast Latency Test: rccl_bcast
OSU RCCL Reduce Latency Test: rccl_reduce
OSU RCCL Reduce_scatter Latency Test: rccl_reduce_scatter
OSU OpenSHMEM Get Test: oshm_get oshm_get_nb
OSU OpenSHMEM Put Test: oshm_put
OSU OpenSHMEM Put_nbi Test: oshm_put_nb
OSU OpenSHMEM Broadcast Latency Test: oshm_broadcast
OSU OpenSHMEM Collect Latency Test: oshm_collect
OSU OpenSHMEM FCollect Latency Test: oshm_fcollect
OSU OpenSHMEM Reduce Latency Test: oshm_reduce
OSU UPC Broadcast Latency Test: upc_all_broadcast
OSU UPC Exchange Latency Test: upc_all_exchange
OSU UPC Gather Latency Test: upc_all_gather
OSU UPC GatherAll Latency Test: upc_all_gather_all
OSU UPC Reduce Latency Test: upc_all_reduce
OSU UPC Scatter Latency Test: upc_all_scatter
OSU UPC MEMGET Test: upc_memget
OSU UPC MEMPUT Test: upc_memput
OSU UPC++ AllGather Latency Test: upcxx_allgather
OSU UPC++ AlltoAll Latency Test: upcxx_alltoall
OSU UPC++ Async Copy (Get) Test: upcxx_async_copy_get
OSU UPC++ Async Copy (Put) Test: upcxx_async_copy_put
OSU UPC++ Broadcast Latency Test: upcxx_bcast
OSU UPC++ Gather Latency Test: upcxx_gather
OSU UPC++ Reduce Latency Test: upcxx_reduce
OSU UPC++ Scatter Latency Test: upcxx_scatter
OMB Python MPI Latency Test: py_latency
OMB Python MPI Multi Latency Test: py_multi_lat
OMB Python MPI Allgather Test: py_allgather
OMB Python MPI Allgatherv Test: py_allgatherv
OMB Python MPI Allreduce Test: py_allreduce
OMB Python MPI Alltoall Test: py_alltoall
OMB Python MPI Alltoallv Test: py_alltoallv
OMB Python MPI Bcast Test: py_bcast
OMB Python MPI Gather Test: py_gather
OMB Python MPI Gatherv Test: py_gatherv
OMB Python MPI Reduce Test: py_reduce
OMB Python MPI Reduce_scatter Test: py_reduce_scatter
OMB Python MPI Scatter Test: py_scatter
OMB Python MPI Scatterv Test: py_scatterv`,
	formBandwidth: `
OSU MPI Bandwidth Test: bw bw_fan_in bw_fan_out
OSU MPI Bandwidth Congestion In Test: bw_fan_in
OSU MPI Bandwidth Congestion Out Test: bw_fan_out
OSU MPI Bandwidth Persistent Test: bw_persistent
OSU MPI Bandwidth Test Persistent: bw_persistent
OSU MPI Bi-Directional Bandwidth Test: bibw
OSU MPI Bi-Directional Bandwidth Persistent Test: bibw_persistent
OSU MPI Bi-Directional Bandwidth Test Persistent: bibw_persistent
OSU MPI_Put Bandwidth Test: put_bw
OSU MPI_Put Bi-directional Bandwidth Test: put_bibw
OSU MPI_Get Bandwidth Test: get_bw
OSU NCCL Bandwidth Test: nccl_bw
OSU NCCL Bi-Directional Bandwidth Test: nccl_bibw
OSU RCCL Bandwidth Test: rccl_bw
OSU RCCL Bi-Directional Bandwidth Test: rccl_bibw
OMB-Py MPI Bandwidth Test: py_bw
OMB-Py MPI Bi-Directional Bandwidth Test: py_bibw`,
	formRates: `
OSU MPI Multiple Bandwidth / Message Rate Test: mbw_mr`,
	formRate: `
OSU OpenSHMEM Put Message Rate Test: oshm_put_mr
OSU OpenSHMEM Put_nb Message Rate Test: oshm_put_mr_nb
OSU OpenSHMEM Get_nb Message Rate Test: oshm_get_mr_nb`,
	formOverlap: `
OSU OpenSHMEM Put_nbi Test: oshm_put_overlap
OSU MPI Non-Blocking Broadcast Latency Test: ibcast
OSU MPI Non-blocking Broadcast Latency Test: ibcast
OSU MPI Non-blocking All-to-All Latency Test: ialltoall
OSU MPI Non-blocking All-to-All Personalized ExchangeLatency Test: ialltoall
OSU MPI Non-blocking All-to-Allv Personalized Exchange Latency Test: ialltoallv ialltoallw
OSU MPI Non-blocking All-to-Allv Personalized ExchangeLatency Test: ialltoallv
OSU MPI Non-blocking All-to-Allw Personalized Exchange Latency Test: ialltoallw
OSU MPI Non-blocking All-to-Allw Personalized ExchangeLatency Test: ialltoallw
OSU MPI Non-blocking Allgather Latency Test: iallgather
OSU MPI Non-blocking Allgatherv Latency Test: iallgatherv
OSU MPI Non-blocking Allreduce Latency Test: iallreduce
OSU MPI Non-blocking Gather Latency Test: igather
OSU MPI Non-blocking Gatherv Latency Test: igatherv
OSU MPI Non-blocking Reduce Latency Test: ireduce
OSU MPI Non-blocking Reduce_scatter Latency Test: ireduce_scatter
OSU MPI Non-blocking Reduce_scatter_block Latency Test: ireduce_scatter_block
OSU MPI Non-blocking Scatter Latency Test: iscatter
OSU MPI Non-blocking Scatterv Latency Test: iscatterv
OSU MPI Non-blocking Neighbor Allgather Latency Test: ineighbor_allgather
OSU MPI Non-blocking Neighbor Allgatherv Latency Test: ineighbor_allgatherv
OSU MPI Non-blocking Neighbor Alltoall Latency Test: ineighbor_alltoall
OSU MPI Non-blocking Neighbor Alltoallv Latency Test: ineighbor_alltoallv
OSU MPI Non-blocking Neighbor Alltoallw Latency Test: ineighbor_alltoallw
OSU MPI Non-blocking Neighborhood Allgather Latency Test: ineighbor_allgather
OSU MPI Non-blocking Neighborhood Allgatherv Latency Test: ineighbor_allgatherv
OSU MPI Non-blocking Neighborhood Alltoall Latency Test: ineighbor_alltoall
OSU MPI Non-blocking Neighborhood Alltoallv Latency Test: ineighbor_alltoallv
OSU MPI Non-blocking Neighborhood Alltoallw Latency Test: ineighbor_alltoallw
OSU MPI Non-blocking Neighborhood All-to-All Latency Test: ineighbor_alltoall
OSU MPI Non-blocking Neighborhood All-to-Allv Latency Test: ineighbor_alltoallv
OSU MPI Non-blocking Neighborhood All-to-Allw Latency Test: ineighbor_alltoallw`,
	formBar: `
OSU MPI Barrier Latency Test: barrier
OSU MPI Barrier Persistent Latency Test: barrier_persistent
OSU OpenSHMEM Barrier Latency Test: oshm_barrier
OSU UPC Barrier Latency Test: upc_all_barrier`,
	formOverlapBar: `
OSU MPI Non-blocking Barrier Latency Test: ibarrier`,
	formNone: `
OSU MPI Hello World Test: hello
OSU MPI Init Test: init
OSU MPI Partitioned Latency Test: partitioned_latency
OSU OpenSHMEM Atomic Operation Rate Test: oshm_atomics
OMB Python MPI Barrier Test: py_barrier`,
}

// osuTest is a test with a title.
type osuTest struct {
	title    string // without accelerator and version
	programs []string
	form     form
}

// osuTests are the tests of each title; OpenSHMEM's Put_nbi has two, which differ in their columns.
var osuTests = sync.OnceValue(func() map[string][]osuTest {
	all := map[string][]osuTest{}
	for f := formLatency; f <= formNone; f++ {
		for _, line := range strings.Split(strings.TrimSpace(osuTitles[f]), "\n") {
			title, programs, _ := strings.Cut(line, ": ")
			all[title] = append(all[title], osuTest{title, strings.Fields(programs), f})
		}
	}
	return all
})

var (
	osuVersion     = lazyregexp.New(` v\d[\w.+~-]{0,30}$`)
	osuAccelerator = lazyregexp.New(`^(OSU (?:MPI(?:_[A-Za-z_]+)?|NCCL|RCCL))-(CUDA MANAGED|CUDA|OPENACC|ROCM|SYCL|MANAGED) `)
)

// titleOf splits a line without its "# " into a title of the table, if it is one, the accelerator, "" without one,
// and the version.
func titleOf(line string) (title, accelerator, version string) {
	title = line
	if at := osuVersion().FindStringIndex(title); at != nil {
		title, version = title[:at[0]], strings.TrimSpace(title[at[0]:])
	}
	if m := osuAccelerator().FindStringSubmatch(title); m != nil {
		title, accelerator = m[1]+title[len(m[0])-1:], m[2]
	}
	return title, accelerator, version
}
