#!/bin/sh
# rehearse.sh [RELEASE...]: README's two commands as somebody runs them who just found the project.
#
# In a bare Debian for each RELEASE (bookworm trixie), with empty caches and a fresh clone of HEAD:
# make demo, then make test. It writes what was fetched from which kind of registry, and how long
# each step took, to measurements/rehearsal.md. As root; up to an hour for each release.
#
# environment: REHEARSE_DIR   where the roots and logs are (build/rehearse)
#              REHEARSE_RUN   the commands, one a line (make demo, make test)
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
dir=${REHEARSE_DIR:-$top/build/rehearse}
run=${REHEARSE_RUN:-'make demo
make test'}
[ $# -gt 0 ] || set -- bookworm trixie
cd "$top"
[ -z "$(git status --porcelain)" ] || echo "rehearse: uncommitted changes are left out: a fresh clone of HEAD is tested" >&2
bad=0
for release; do
	log=$dir/$release
	rm -rf "$log"
	mkdir -p "$log"
	git rev-parse --short HEAD >"$log/commit"
	date -u +%Y-%m-%d >"$log/date"
	printf '%s\n' "$run" >"$log/commands"
	echo "== $release: a bare root, empty caches, a fresh clone of $(cat "$log/commit"); logs in $log"
	# The commands run in one root, one after the other. The second is run even if the first failed.
	DEBIAN_DIR=$dir/roots/$release DEBIAN_LOG=$log FETCH_LOG=/log/fetched TEST_LOG=/log/parts CI=true \
		sh scripts/debian.sh --bare "$release" sh -c '
		status=0
		while read -r command; do
			echo "\$ $command"
			began=$(date +%s)
			result=ok
			printf "#\t%s\n" "$command" >>/log/fetched
			sh -c "$command" </dev/null || { result=FAILED; status=1; }
			printf "%s\t%d\t%s\n" "$command" $(($(date +%s) - began)) $result >>/log/steps
		done </log/commands
		{
			. /etc/os-release
			echo "$PRETTY_NAME ($(cat /etc/debian_version))"
			uname -r
			nproc
			go env GOVERSION
			gcc --version | head -1
			qemu-system-x86_64 --version | head -1
			dpkg-query -W -f "Slurm \${Version}\n" slurmd
		} >/log/versions 2>&1
		exit $status' >"$log/output" 2>&1 </dev/null &
	run_pid=$!
	trap 'kill "$run_pid" 2>/dev/null; exit 130' INT TERM HUP
	# Its parts, as they come.
	tail -n +1 --pid="$run_pid" -f "$log/output" | sed -un '/^\$ make/p; /^== /p; /FAIL/p; /^ok /p; /parts passed/p'
	wait "$run_pid" || bad=1
	trap - INT TERM HUP
done
python3 scripts/rehearsal.py "$dir" "$@" >measurements/rehearsal.md
echo "measurements/rehearsal.md"
exit $bad
