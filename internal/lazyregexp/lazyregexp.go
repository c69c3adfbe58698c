// Package lazyregexp compiles regular expressions at their first use. nearmetal-task runs
// once for each rank of a job, and compiling the expressions of all packages that it is made of took a
// third of its time.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns expr compiled (syntax of package regexp). It compiles
// at its first call, and panics there if expr is not valid.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
