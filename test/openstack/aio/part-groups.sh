# part-groups.sh: two groups of a project, and one of another, have regions of their own, which begin with zeroes; sourced by
# day.sh. The servers need not boot: what they share is seen in /dev/shm, and written there in their place.
# of USER SERVER: the file of its region.
of() {
	local id=$(as "$1" openstack server show "$2" -f value -c id)
	nearmetal host openstack-region status --json | python3 -c '
import json, sys
for r in json.load(sys.stdin)["regions"]:
    if any(v["uuid"] == sys.argv[1] for v in r["vms"]):
        print("/dev/shm/nearmetal-openstack/" + r["key"])' "$id"
}
# holds FILE BYTE: all behind the header is that byte, in octal.
holds() {
	echo "$1: $(tail -c +4097 "$1" | tr -d "\\$2" | wc -c) bytes are not \\$2"
	[ "$(stat -c %s "$1")" = 67108864 ] && tail -c +4097 "$1" | tr -d "\\$2" | cmp - /dev/null
}
fill() { tail -c +4097 "$1" | tr "\\000" "\\$2" | dd of="$1" bs=4096 seek=1 conv=notrunc; }
first() {
	server ann a-1 && server ann b-1 && server bob a-1 && until_ "three groups have three regions" regions 3 3 &&
		a=$(of ann a-1) b=$(of ann b-1) c=$(of bob a-1) && holds "$a" 000 && holds "$b" 000 && holds "$c" 000 &&
		fill "$a" 101 && fill "$b" 102 && fill "$c" 103
}
again() {
	server ann a-2 && until_ "it has the region" regions 4 3 && [ "$(of ann a-2)" = "$a" ] && holds "$a" 101 &&
		as ann openstack server delete --wait b-1 && until_ "the group's region is gone" regions 3 2 && [ ! -e "$b" ] &&
		server ann b-2 && until_ "it has a new one" regions 4 3 && holds "$(of ann b-2)" 000 && holds "$a" 101 && holds "$c" 103
}
end() { as ann openstack server delete --wait a-1 a-2 b-2 && as bob openstack server delete --wait a-1 && until_ "no region" regions 0 0; }
step "three groups of two projects: three regions of zeroes" first
step "a server that joins finds what was written; a group that comes again finds zeroes" again
step "all are deleted" end
step "nothing is left" nothing
