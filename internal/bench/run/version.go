package run

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode"

	"nearmetal/internal/bench/process"
	"nearmetal/internal/bench/suite"
)

// versionBound bounds the time in which a program prints its version.
const versionBound = 20 * time.Second

// versions queries the versions of the programs of all experiments, each once, if a suite states how
// (programs[].version), and stores them in the record. A program that prints none is still used.
func (r *runner) versions(ctx context.Context) {
	asked := map[string]bool{}
	for i := range r.exps {
		x := &r.exps[i]
		for v := range r.request.Variants {
			path, ok := x.paths[v]
			if !ok || len(x.prog.Version) == 0 || asked[path] {
				continue
			}
			asked[path] = true
			words, err := expandAll(x.prog.Version, map[string]string{"program": path})
			if err != nil {
				continue
			}
			res, err := process.Run(ctx, process.Command{Args: words, Env: natively(nil), Dir: r.folder.dir, Timeout: versionBound})
			if err != nil {
				continue // it cannot be started: its repetitions will report it
			}
			r.versionIn(x, append(append(res.Out, '\n'), res.Err...))
			break
		}
	}
}

// versionIn stores the version in a program's text, once per program.
func (r *runner) versionIn(x *experiment, text []byte) {
	name := strings.TrimPrefix(x.prog.Name, "kernels/")
	if r.record.Host.Versions[name] != "" || x.prog.Kernel != "" { // kernels have nearmetal's version
		return
	}
	if found := findVersion(&x.prog, text); found != "" {
		if r.record.Host.Versions == nil {
			r.record.Host.Versions = map[string]string{}
		}
		r.record.Host.Versions[name] = found
	}
}

// maxVersion bounds a version, in bytes.
const maxVersion = 100

// findVersion returns the version in a text: the group "value" of the program's expression, or without one, if the
// text is a command's output, its first line with a digit.
func findVersion(p *suite.Program, text []byte) string {
	if p.VersionMatch != "" {
		re, err := suite.Regexp(p.VersionMatch)
		if err != nil {
			return ""
		}
		if m := re.FindSubmatch(text); m != nil {
			return plainText(m[re.SubexpIndex("value")])
		}
		return ""
	}
	if len(p.Version) == 0 {
		return ""
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		if bytes.ContainsAny(line, "0123456789") {
			return plainText(line)
		}
	}
	return ""
}

// plainText returns a program's text on one line, without control characters, and not long. text.OneLine is not used,
// because versions are compared: a control character becomes a space, and not a '?' that could be the program's.
func plainText(b []byte) string {
	s := strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) { // including C1 characters, which some terminals interpret
			return ' '
		}
		return c
	}, strings.ToValidUTF8(string(b), ""))), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxVersion)], "")
}
