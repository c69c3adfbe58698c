package launch

import (
	"strconv"
	"strings"

	"nearmetal/internal/pattern"
)

// Library is an MPI library, as far as its launcher differs from others'.
type Library string

// The libraries whose launchers are known.
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
	Version string // as it says itself, "4.1.4"; empty: it does not say
}

// Major is the first number of the version, 0 when there is none.
func (l Launcher) Major() int {
	s, _, _ := strings.Cut(l.Version, ".")
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// Daemon is the program that the launcher starts in each VM, which must be found there.
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

// String is the library and its version: "Open MPI 4.1.4".
func (l Launcher) String() string {
	return strings.TrimSpace(string(l.Library) + " " + l.Version)
}

// What launchers answer to --version.
var (
	// "mpirun (Open MPI) 5.0.11", "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun (IBM Spectrum MPI) 10.3".
	openMPIVersion = pattern.Lazy(`(?m)^\S+ \((?:Open MPI|OpenRTE|IBM Spectrum MPI)\) (\d[\w.+-]*)`)
	// "prterun (PRRTE) 3.0.14": PRRTE 3 and later belong to Open MPI 5 and later.
	prrteVersion = pattern.Lazy(`(?m)^\S+ \((?:PRRTE|PRTE|PMIx Reference RunTime Environment)\) (\d[\w.+-]*)`)
	hydraVersion = pattern.Lazy(`(?m)^HYDRA build details:\s*\n\s*Version:\s+(\S+)`)
	intelVersion = pattern.Lazy(`(?m)^Intel\(R\) MPI Library for Linux\S* OS, Version (\d+(?:\.\d+)*)`)
)

// classify tells a launcher's library and version by what it answered to --version.
// The path tells MVAPICH from MPICH where its hydra does not.
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
