# What the kernel of this VM says of its topology, an attribute a line. See guest.go.
exec 2>/dev/null
cd / || exit 1

# The first line of each file.
first() {
	for x; do
		[ -r "$x" ] && IFS= read -r l <"$x" && printf 'f %s %s\n' "$x" "$l"
	done
}

# Lists of CPUs are binary attributes: they give nothing to who reads byte by byte, as
# shells do. So one cat reads all of them, a line each, after their names.
lists() {
	for x; do
		[ -r "$x" ] || set -- # the answer then lacks them as a whole, and that is seen
	done
	printf 'c lists %s\n' $#
	[ $# = 0 ] && return
	printf '%s\n' "$@"
	cat "$@"
}

cpu=sys/devices/system/cpu
node=sys/devices/system/node
first $cpu/online $cpu/present
for d in $cpu/cpu[0-9]*; do
	first $d/topology/physical_package_id $d/topology/die_id
	for c in $d/cache/index[0-9]*; do
		first $c/level $c/type $c/size $c/shared_cpu_list
	done
done
first $node/online proc/meminfo
for d in $node/node[0-9]*; do
	first $d/distance $d/meminfo
done
lists $cpu/cpu[0-9]*/topology/thread_siblings_list $node/node[0-9]*/cpulist
for d in sys/bus/pci/devices/*; do
	[ -d $d ] || continue
	cd -P $d && printf 'l %s %s\n' $d "$PWD"
	at=${PWD#/}
	cd /
	first $at/class $at/vendor $at/device $at/numa_node
	IFS= read -r id <$at/device
	# Only the region's device is asked for its windows.
	[ "$id" = 0x1110 ] && while IFS= read -r l; do
		printf 'f %s %s\n' $at/resource "$l"
	done <$at/resource
done
first sys/bus/dax/devices/dax*/size
echo end
