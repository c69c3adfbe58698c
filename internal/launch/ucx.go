package launch

import (
	"slices"
	"strings"
)

// ucxTransport is the name of nearmetal's transport in UCX.
const ucxTransport = "ivshmem"

// ucx returns the variables that make Open MPI use pml ucx, also without an RDMA device, and give it priority over
// the provider's pml cm. They are set only if UCX is preferred or named in OMPI_MCA_pml, because with them each rank
// creates a UCX worker at its start even if it then uses the other pml.
func ucx(s Setup) []variable {
	if !s.PreferUCX && !s.userUCX {
		return nil
	}
	vars := []variable{
		{"OMPI_MCA_opal_common_ucx_tls", "any", false},
		{"OMPI_MCA_opal_common_ucx_devices", "any", false},
	}
	if s.PreferUCX {
		vars = append(vars, variable{"OMPI_MCA_pml_ucx_priority", "200", false})
	}
	return vars
}

// namesUCX reports whether OMPI_MCA_pml in environ (NAME=value) asks for ucx. Without an RDMA device Open MPI would
// then not find it.
func namesUCX(environ []string) bool {
	named := false
	for _, v := range environ {
		if pml, ok := strings.CutPrefix(v, "OMPI_MCA_pml="); ok {
			named = slices.Contains(strings.Split(pml, ","), "ucx")
		}
	}
	return named
}

// appended returns environ (NAME=value) with value at the end of the list in name. Any of separators divides its
// words; the first one is used to append. A list that already has value is unchanged.
func appended(environ []string, name, value, separators string) []string {
	out := slices.Clone(environ)
	for i, v := range out {
		theirs, ok := strings.CutPrefix(v, name+"=")
		if !ok {
			continue
		}
		list := strings.FieldsFunc(theirs, func(r rune) bool { return strings.ContainsRune(separators, r) })
		if !slices.Contains(list, value) {
			out[i] = name + "=" + strings.Join(append(list, value), separators[:1])
		}
		return out
	}
	return append(out, name+"="+value)
}

// Preload returns environ (NAME=value) of a program in a VM with the library in file preloaded: nearmetal's transport
// for UCX, in the directory dir. Libraries that the user preloads stay before it.
func Preload(environ []string, dir, file string) []string {
	out := appended(environ, "LD_PRELOAD", dir+"/"+file, ": ")
	// A program built with the address sanitizer aborts if another library precedes the sanitizer's. The transport
	// replaces no function of the sanitizer.
	out = appended(out, "ASAN_OPTIONS", "verify_asan_link_order=0", ": ,")
	// In a container the library has the same path as outside.
	for _, name := range []string{"APPTAINER_BIND", "SINGULARITY_BIND"} {
		out = appended(out, name, dir, ",")
	}
	return out
}

// UCXNotices returns, one line each, the settings in environ (NAME=value) of a job that keep MPI libraries on UCX
// from using the region. The user's choice is respected.
func UCXNotices(environ []string) []string {
	var lines []string
	for _, v := range environ {
		if tls, ok := strings.CutPrefix(v, "UCX_TLS="); ok && !takesTransport(tls) {
			lines = append(lines, "UCX_TLS="+tls+" is respected: without "+ucxTransport+" in it, MPI libraries on UCX do not use the region")
		}
		if pml, ok := strings.CutPrefix(v, "OMPI_MCA_pml="); ok && !slices.ContainsFunc(strings.Split(pml, ","), takesPML) {
			lines = append(lines, "OMPI_MCA_pml="+pml+" is respected: Open MPI uses the region by cm and ucx only")
		}
	}
	return lines
}

// takesTransport reports whether a list in UCX_TLS lets UCX use the transport.
func takesTransport(tls string) bool {
	if tls == "" {
		return true
	}
	not, negated := strings.CutPrefix(tls, "^")
	words := strings.Split(not, ",")
	return slices.Contains(words, ucxTransport) != negated || !negated && slices.Contains(words, "all")
}

// takesPML reports whether a word in Open MPI's list of pml lets it use the region. A list that begins with ^ names
// the excluded ones.
func takesPML(word string) bool { return word == "cm" || word == "ucx" || strings.HasPrefix(word, "^") }
