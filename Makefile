# nearmetal: one Makefile in front of Go and Meson.
#
#   make demo         an MPI program natively and in two VMs, side by side
#   make test         everything that CI runs
#   make              build/nearmetal and build/c/kernels/*
#   make bench-boot   boot times, phase by phase, beside a bare QEMU line
#   make bench-report how long a report of a hundred thousand points takes, and its size
#   make test-report-browser   the report's page in Chromium, which it installs
#   make bench-plan   how long planning takes, on described machines
#   make bench-check  how long nearmetal check takes, on a described host of 512 CPUs
#   make bench-fabric   the libfabric provider beside its peers
#   make bench-fabric-vm   its latency between VMs beside TCP's
#   make test-slurm   srun --vm on a real Slurm on this machine (root)
#   make test-slurm-sacct  what sacct says of such jobs (installs MariaDB)
#   make test-slurm-unified  where Slurm has the VMs with cgroups of the second version
#   make bench-slurm  what srun --vm costs, beside plain srun
#   make slurm-shell  a shell beside such a Slurm
#   make test-debian13   unit, demo and test-slurm in a Debian 13, which it makes (root; 5 GB below build/)
#   make bench        our suites natively over each MPI, and in VMs; their report
#   make bench-harness   what the benchmarks' harness adds to what it measures
#   make test-sriov   devices on an emulated host with an IOMMU and an SR-IOV card, and a VM with a VF
#   make bench-device handing 8 VFs over
#   make soak         the fault tests in every combination; ranks killed for an hour
#   make test-mpi4py  all of mpi4py's test suite over the provider: a quarter of an hour
#   make check-fabric-sanitizers   the provider under ASan, UBSan, TSan and valgrind
#   make fuzz         every fuzz target for FUZZ_SECONDS (10)
#   make docs         the generated pages: docs/reference, man pages
#   make install      below PREFIX (/usr/local)

SHELL   := /bin/sh
PREFIX  ?= /usr/local
# Slurm's folder of plugins: Debian's, RHEL's, upstream's.
SLURM_PLUGINS ?= $(firstword $(wildcard /usr/lib/*/slurm-wlm /usr/lib64/slurm) /usr/local/lib/slurm)
VERSION := $(shell cat VERSION)
COMMIT  := $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

export CGO_ENABLED := 0
AGENT   := internal/guest/image/payload/agent-x86_64
GOFLAGS_BUILD := -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)'

.PHONY: bench-report test-report-browser all deps c agent go wheels extras test unit e2e lint demo bench bench-harness bench-boot bench-plan bench-check test-fabric test-mpi4py check-fabric-sanitizers bench-fabric bench-fabric-vm slurm test-slurm test-debian13 test-slurm-sacct test-slurm-unified bench-slurm slurm-shell test-sriov bench-device soak fuzz docs install clean

all: go

deps:
	@sh scripts/deps.sh

build/c/build.ninja: | deps
	@meson setup --buildtype=release build/c . >build-c.log 2>&1 || { cat build-c.log; rm -f build-c.log; exit 1; }
	@rm -f build-c.log

c: deps build/c/build.ninja
	@ninja --quiet -C build/c

# The agent is embedded in the Go binary, so that one file is all a node needs.
agent: c
	@cmp -s build/c/guest/nearmetal-agent $(AGENT) || cp build/c/guest/nearmetal-agent $(AGENT)

go: agent
	@test ! -L build/nearmetal-task || rm build/nearmetal-task
	@go build $(GOFLAGS_BUILD) -o build/ ./cmd/nearmetal ./cmd/nearmetal-task
	@ln -sf nearmetal build/nearmetal-rsh

lint: agent
	@test -z "$$(gofmt -l cmd internal test)" || { echo "gofmt:"; gofmt -l cmd internal test; exit 1; }
	@go vet ./...

# Open MPI 5 and MPICH 5, for the tests of launchers.
wheels: deps
	@sh scripts/wheels.sh

unit: go lint wheels
	go test ./cmd/... ./internal/...
	meson test -C build/c --print-errorlogs --no-rebuild region_pingpong region_atomics units fabric_past fabric_direct fabric_await fabric fabric_fuzz slurm

# The SPANK plugin: Slurm's own packages, and a build that knows of them.
slurm: go
	@sh scripts/deps-slurm.sh
	@test -e build/c/slurm/spank_nearmetal.so || { meson setup --reconfigure build/c >/dev/null && ninja --quiet -C build/c; }

test-slurm: slurm extras
	go test -count=1 -timeout 40m ./test/slurm

# The same, and more, with the compilers, MPI libraries, QEMU and Slurm of Debian 13.
DEBIAN13_PARTS ?= unit demo test-slurm
test-debian13:
	@sh scripts/debian13.sh make $(DEBIAN13_PARTS)

# With slurmdbd and its database, which take 120 MB.
test-slurm-sacct: slurm
	@sh scripts/deps-slurm-sacct.sh
	go test -count=1 -timeout 20m -tags sacct -run TestSacct ./test/slurm

# On a host in a VM, with the unified cgroups alone.
test-slurm-unified: slurm
	go test -count=1 -timeout 20m -tags unified -run TestUnified ./test/slurm

bench-slurm: slurm
	@go run ./test/bench/slurm

slurm-shell: slurm
	@go run ./test/slurm/bed/shell

# LAMMPS and Intel MPI, for the tests of MPI libraries over the provider.
extras: wheels
	@sh scripts/extras.sh

e2e: go wheels slurm extras
	go test -count=1 -p 1 -timeout 40m ./test/...

test: unit e2e test-report-browser

demo: go
	@sh scripts/demo.sh

bench-boot: go
	@go run ./test/bench/boot

bench: go
	@sh scripts/deps-bench.sh
	@sh scripts/bench.sh

bench-harness: go
	@go run ./test/bench/harness

bench-plan: go
	@go run ./test/bench/plan

bench-report:
	@go run ./test/bench/report

# The report's page at three widths, light, dark and printed. NEARMETAL_SHOTS=DIR keeps pictures.
test-report-browser:
	@sh scripts/browser.sh
	go test -tags browser -count=1 -run TestBrowser ./internal/report

bench-check:
	@go run ./test/bench/check

# The libfabric provider's own tests, which unit runs too, and its bench.
test-fabric: c
	meson test -C build/c --print-errorlogs --no-rebuild fabric fabric_fuzz

# CI runs a part of it (test/mpi).
test-mpi4py: c wheels
	@sh scripts/mpi4py-tests.sh

check-fabric-sanitizers: deps
	@sh scripts/fabric-sanitizers.sh

bench-fabric: c wheels
	@go run ./test/bench/fabric

# VFs for real: an outer host under TCG with an emulated card, in it a VM with a VF. Minutes.
test-sriov: go
	NEARMETAL_SRIOV=1 go test -count=1 -v -timeout 40m ./test/sriov

bench-device:
	go test -run '^$$' -bench HandOver -benchtime 5x ./internal/host/device

# Its latency between VMs beside TCP's over their network.
bench-fabric-vm: go wheels
	@go run ./test/bench/fabricvm

# Kills and faults at every step, in all combinations: half an hour and more.
soak: go wheels
	NEARMETAL_SOAK=1 go test -count=1 -timeout 3h -run 'TestFault' ./test/e2e
	@sh scripts/fabric-soak.sh

fuzz: go
	@sh scripts/fuzz.sh

docs: go
	@go generate ./...
	@build/nearmetal man docs/man

install: go
	install -Dm755 build/nearmetal $(DESTDIR)$(PREFIX)/bin/nearmetal
	rm -f $(DESTDIR)$(PREFIX)/bin/nearmetal-task
	install -Dm755 build/nearmetal-task $(DESTDIR)$(PREFIX)/bin/nearmetal-task
	ln -sf nearmetal $(DESTDIR)$(PREFIX)/bin/nearmetal-rsh
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	build/nearmetal man $(DESTDIR)$(PREFIX)/share/man/man1
	for k in nm_latency nm_bw nm_bibw nm_mbw_mr nm_multi_lat nm_rma nm_coll nm_cg nm_onesided nm_stream region_pingpong region_atomics; do \
		install -Dm755 build/c/kernels/$$k $(DESTDIR)$(PREFIX)/libexec/nearmetal/$$k; done
	install -Dm755 build/c/fabric/libivshmem-fi.so $(DESTDIR)$(PREFIX)/lib/nearmetal/libfabric/libivshmem-fi.so
	install -Dm755 build/c/fabric/mpi/libivshmem-mpi.so $(DESTDIR)$(PREFIX)/lib/nearmetal/libivshmem-mpi.so
	install -Dm644 docs/man/fi_ivshmem.7 $(DESTDIR)$(PREFIX)/share/man/man7/fi_ivshmem.7
	for h in region layout fabric; do \
		install -Dm644 include/nearmetal/$$h.h $(DESTDIR)$(PREFIX)/include/nearmetal/$$h.h; done
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' fabric/nearmetal-fabric.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/nearmetal-fabric.pc
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	build/nearmetal completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/nearmetal
	build/nearmetal completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_nearmetal
	build/nearmetal completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/nearmetal.fish
	test ! -e build/c/slurm/spank_nearmetal.so || \
		install -Dm755 build/c/slurm/spank_nearmetal.so $(DESTDIR)$(SLURM_PLUGINS)/spank_nearmetal.so

clean:
	rm -rf build $(AGENT)
