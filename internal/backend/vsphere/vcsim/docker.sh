#!/bin/sh
# What the simulator asks docker for: a guest is a process in namespaces of its own below GUESTS, with an ssh server.
guests='GUESTS' here='HERE'
verb=$1
shift
skip() { # the options before the container's id
	while :; do
		case $1 in
		-i | -f) shift ;;
		-v) shift ;;
		-w | -e) shift 2 ;;
		*) break ;;
		esac
	done
	id=$1
	dir=$guests/$id
}
inside() {
	id=$1
	dir=$guests/$id
	shift
	# Tools start programs in the user's home.
	exec nsenter -t "$(cat "$dir/child")" -m -u -p -- sh -c 'cd /root && exec "$@"' sh "$@"
}
end() { # the first process of a guest takes all others along
	for f in child pid; do test -f "$guests/$1/$f" && kill -9 "$(cat "$guests/$1/$f")" 2>/dev/null; done
}
case $verb in
create)
	name=$2
	id=$(printf %s "$name" | md5sum | cut -c1-12)
	mkdir -p "$guests/$id"
	printf %s "$name" >"$guests/$id/name"
	echo "$id"
	;;
start)
	dir=$guests/$1
	vm=$(sed -n 's/^vcsim-.*-\([a-z]*[0-9]*\)-[0-9a-f]\{16\}-[0-9a-f-]\{36\}$/\1/p' "$dir/name")
	: "${vm:=guest0}" # one that is not nearmetal's
	n=$(printf %s "$vm" | tr -dc 0-9)
	printf '127.7.0.%d' $((n + 1)) >"$dir/address"
	rm -rf "$dir/ssh" "$dir/up"
	setsid unshare -m -u -p -f --mount-proc --kill-child sh "$here/guest.sh" "$dir" "$(cat "$dir/address")" "$vm" "$here" \
		</dev/null >/dev/null 2>"$dir/log" &
	pid=$!
	echo $pid >"$dir/pid"
	(tail -f /dev/null --pid=$PPID && kill -9 "$(cat "$dir/child")" $pid) </dev/null >/dev/null 2>&1 & # also where the test is killed
	# Its first process is the one in a namespace of its own; it is ready when its files are.
	until test -f "$dir/up"; do kill -0 $pid || exit 1; done
	for child in $(cat "/proc/$pid/task/$pid/children"); do
		test "$(readlink "/proc/$child/ns/pid")" = "$(readlink /proc/self/ns/pid)" || break
	done
	echo "$child" >"$dir/child"
	echo "$1"
	;;
inspect)
	dir=$guests/$1
	test -d "$dir" || exit 1
	running=false
	test -f "$dir/pid" && kill -0 "$(cat "$dir/pid")" 2>/dev/null && running=true
	printf '[{"State":{"Running":%s,"Paused":false},"NetworkSettings":{"IPAddress":"%s","IPPrefixLen":24,"Networks":{}}}]\n' \
		$running "$(cat "$dir/address")"
	;;
exec)
	skip "$@"
	while test "$1" != "$id"; do shift; done
	inside "$@"
	;;
stop)
	end "$1"
	rm -f "$guests/$1/pid"
	;;
rm)
	for id; do :; done
	end "$id"
	rm -rf "${guests:?}/$id"
	;;
events) exec tail -f /dev/null --pid=$PPID ;;
esac
exit 0
