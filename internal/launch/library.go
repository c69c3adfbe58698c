package launch

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// Library is an MPI library, as far as its launcher differs from others.
type Library string

// The libraries with known launchers.
const (
	OpenMPI Library = "Open MPI"
	MPICH   Library = "MPICH"
	Intel   Library = "Intel MPI"
	MVAPICH Library = "MVAPICH"
)

// Launcher is an MPI library's own launcher.
type Launcher struct {
	Program string // absolute path, symbolic links followed
	Library Library
	Version string // as it reports it, "4.1.4"; empty: not reported
	Device  string // configured device of MPICH, "ch4:ucx" or "ch4:ucx,ofi"; empty: not reported
}

// Major returns the first number of the version, or 0 if the version is unknown.
func (l Launcher) Major() int {
	s, _, _ := strings.Cut(l.Version, ".")
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// Daemon returns the program that the launcher starts in each VM, where it must be installed.
func (l Launcher) Daemon() string {
	switch {
	case l.Library == OpenMPI && l.Major() >= 5:
		return "prted"
	case l.Library == OpenMPI:
		return "orted"
	case l.Library == Intel:
		return "hydra_bstrap_proxy"
	}
	return "hydra_pmi_proxy"
}

// WithoutFabric reports whether the library is known to have no libfabric and therefore cannot use nearmetal's
// provider.
func (l Launcher) WithoutFabric() bool {
	return l.Device != "" && !strings.Contains(l.Device, "ofi")
}

// HangWarning returns a line to print for a library that hangs at the end of programs whose ranks are in more than
// one VM (docs/mpi-troubleshooting.md); empty: none.
func (l Launcher) HangWarning(vms int) string {
	if l.Library != MPICH || vms < 2 || l.Device != "ch4:ucx" {
		return ""
	}
	minor := 0
	if _, err := fmt.Sscanf(l.Version, "4.%d", &minor); err != nil || minor > 1 {
		return ""
	}
	return l.String() + " on UCX may hang in MPI_Finalize with ranks in several VMs, when all results are out: use MPICH 4.2 or later, or Open MPI (docs/mpi-troubleshooting.md)"
}

// String returns the library and its version: "Open MPI 4.1.4".
func (l Launcher) String() string {
	return strings.TrimSpace(string(l.Library) + " " + l.Version)
}

// Output of launchers for --version.
var (
	// "mpirun (Open MPI) 5.0.11", "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun (IBM Spectrum MPI) 10.3".
	openMPIVersion = lazyregexp.New(`(?m)^\S+ \((?:Open MPI|OpenRTE|IBM Spectrum MPI)\) (\d[\w.+-]*)`)
	// "prterun (PRRTE) 3.0.14": PRRTE 3 and later belong to Open MPI 5 and later.
	prrteVersion = lazyregexp.New(`(?m)^\S+ \((?:PRRTE|PRTE|PMIx Reference RunTime Environment)\) (\d[\w.+-]*)`)
	hydraVersion = lazyregexp.New(`(?m)^HYDRA build details:\s*\n\s*Version:\s+(\S+)`)
	hydraDevice  = lazyregexp.New(`'--with-device=([^']*)'`)
	intelVersion = lazyregexp.New(`(?m)^Intel\(R\) MPI Library for Linux\S* OS, Version (\d+(?:\.\d+)*)`)
)

// device returns the device in the output of an MPICH's hydra.
func device(lib Library, output string) string {
	if m := hydraDevice().FindStringSubmatch(output); m != nil && lib == MPICH {
		return m[1]
	}
	return ""
}

// Said returns the launcher program whose --version printed said; ok is false if the output is not a known
// launcher's.
func Said(program, output string) (Launcher, bool) {
	lib, v, ok := classify(program, output)
	return Launcher{Program: program, Library: lib, Version: v, Device: device(lib, output)}, ok
}

// classify returns a launcher's library and version from the output of --version. The path distinguishes MVAPICH from
// MPICH if its hydra does not.
func classify(path, output string) (lib Library, version string, ok bool) {
	if m := intelVersion().FindStringSubmatch(output); m != nil {
		return Intel, m[1], true
	}
	if m := openMPIVersion().FindStringSubmatch(output); m != nil {
		return OpenMPI, m[1], true
	}
	if prrteVersion().MatchString(output) {
		return OpenMPI, "5", true
	}
	if m := hydraVersion().FindStringSubmatch(output); m != nil {
		if strings.Contains(strings.ToLower(path+output), "mvapich") {
			return MVAPICH, m[1], true
		}
		return MPICH, m[1], true
	}
	return "", "", false
}
