# Copyright of nearmetal's authors. SPDX-License-Identifier: Apache-2.0
"""nearmetal for Spack 1.0 and newer: put the folder nearmetal into the packages of a repository of your own (spack repo
create)."""

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Nearmetal(MakefilePackage):
    """MPI programs in virtual machines, at the speed of the metal: the command nearmetal, a libfabric provider over
    memory that virtual machines share, and Slurm's plugin. QEMU is the system's own."""

    # A source tarball of make dist, unpacked: spack dev-build, or spack develop --path.
    version("0.1.0")

    variant("slurm", default=False, description="build the plugin for Slurm")
    variant("mpi", default=True, description="build the programs that measure MPI")

    depends_on("c", type="build")
    depends_on("go@1.22:", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libfabric@1.17:")
    depends_on("mpi", when="+mpi")
    depends_on("slurm", when="+slurm")

    def edit(self, spec: Spec, prefix: Prefix) -> None:
        args = ["setup", "--buildtype=release", "--prefix=" + prefix]
        args.append("-Dmpicc=" + (spec["mpi"].mpicc if spec.satisfies("+mpi") else "none"))
        if spec.satisfies("+slurm"):
            args.append("-Dc_args=-I" + spec["slurm"].prefix.include)
        which("meson", required=True)(*args, "build/c", ".")

    def build(self, spec: Spec, prefix: Prefix) -> None:
        # Not make all: make deps would ask apt for packages.
        ninja = which("ninja", required=True)
        ninja("-C", "build/c")
        make("-o", "deps", "go")

    def install(self, spec: Spec, prefix: Prefix) -> None:
        make("-o", "deps", "install", "PREFIX=" + prefix, "SLURM_PLUGINS=" + join_path(prefix.lib, "slurm"))

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.prepend_path("FI_PROVIDER_PATH", join_path(self.prefix.lib, "nearmetal", "libfabric"))
