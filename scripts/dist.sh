#!/bin/sh
# dist.sh [DIR]: the source tarball of HEAD, DIR/nearmetal-VERSION.tar.gz (DIR: build). The same
# commit always has the same bytes: git writes the commit's time into it, gzip none.
set -eu
top=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
mkdir -p "${1:-$top/build}"
dir=$(CDPATH= cd -- "${1:-$top/build}" && pwd)
cd "$top"
git rev-parse -q --verify HEAD >/dev/null 2>&1 || {
	echo "dist.sh: this is not a git repository: a source tarball is made from a commit" >&2
	exit 1
}
version=$(git show HEAD:VERSION)
git show HEAD:CHANGELOG.md | grep -q "^## $version\( \|\$\)" || {
	echo "dist.sh: CHANGELOG.md has no heading \"## $version\": see docs/release.md" >&2
	exit 1
}
[ -z "$(git status --porcelain)" ] || echo "dist.sh: uncommitted changes are not in the tarball" >&2
name=nearmetal-$version
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -9n >"$dir/$name.tar.gz.new"
mv "$dir/$name.tar.gz.new" "$dir/$name.tar.gz"
cd "$dir" && sha256sum "$name.tar.gz"
