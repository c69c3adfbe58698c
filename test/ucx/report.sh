#!/bin/sh
# report.sh LIBRARY DYNAMIC STATIC: what the transport says with NEARMETAL_UCX_REPORT. LIBRARY is preloaded. DYNAMIC and
# STATIC are programs that start UCX, of which STATIC holds it.
library=$1 dynamic=$2 static=$3
unset UCX_LOG_LEVEL OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK SLURM_PROCID

# expect TEXT COMMAND...: COMMAND writes one line with TEXT on stderr; "": none.
expect() {
	text=$1
	shift
	out=$(LD_PRELOAD=$library env "$@" 2>&1) || { echo "$*: it fails: $out"; exit 1; }
	case $out in
	*"
"*) echo "$*: more than a line: $out"; exit 1 ;;
	esac
	case $text,$out in
	,) ;;
	,*) echo "$*: expected nothing: $out"; exit 1 ;;
	*) case $out in
		*"$text"*) ;;
		*) echo "$*: expected '$text': $out"; exit 1 ;;
		esac ;;
	esac
}

expect 'it has the transport ivshmem' NEARMETAL_UCX_REPORT=1 "$dynamic"
expect 'a UCX is linked into it' NEARMETAL_UCX_REPORT=1 "$static"
expect 'a UCX is linked into it' NEARMETAL_UCX_REPORT=1 PMI_RANK=0 "$static"
expect '' NEARMETAL_UCX_REPORT=1 PMI_RANK=1 "$static"
expect '' NEARMETAL_UCX_REPORT=1 OMPI_COMM_WORLD_RANK=3 "$dynamic"
expect '' "$static"
expect '' NEARMETAL_UCX_REPORT=1 true
