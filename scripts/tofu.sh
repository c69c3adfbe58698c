#!/bin/sh
# tofu.sh FOLDER        builds OpenTofu and its provider for OpenStack from the Go module proxy into FOLDER, and writes
#                       FOLDER/config there, by which tofu finds the provider (TF_CLI_CONFIG_FILE). Takes minutes.
#
# The provider's module asks for Go 1.24. What is there already is not built again.
set -eu
[ $# = 1 ] || {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
	exit 2
}
mkdir -p "$1"
folder=$(CDPATH= cd -- "$1" && pwd)
# OpenTofu and the provider replace modules in their go.mod, so that go install takes neither: each is built in a copy.
build() {
	module=$1 version=$2 package=$3 program=$4
	[ ! -x "$folder/$program" ] || return 0
	echo "building $program $version" >&2
	source=$(GOTOOLCHAIN=local go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	[ -n "$source" ] || {
		echo "tofu.sh: the Go module proxy has no $module $version" >&2
		exit 1
	}
	rm -rf "$folder/source"
	cp -r "$source" "$folder/source"
	chmod -R u+w "$folder/source"
	(cd "$folder/source" && GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$folder/$program.new" "$package")
	mv "$folder/$program.new" "$folder/$program"
	rm -rf "$folder/source"
}
# In a module of its own, so that go mod download does not read ours.
cd "$folder"
[ -e go.mod ] || echo "module tofu" >go.mod
build github.com/opentofu/opentofu v1.9.4 ./cmd/tofu tofu
build github.com/terraform-provider-openstack/terraform-provider-openstack/v3 v3.4.0 . terraform-provider-openstack
cat >config <<X
provider_installation {
  dev_overrides { "terraform-provider-openstack/openstack" = "$folder" }
  direct {}
}
X
