// Package pattern is for regular expressions that a program may never use: they are
// compiled at their first use. nearmetal-task runs once for each rank of a job, and
// compiling the patterns of all that it is made of took a third of its time.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy gives the compiled expr (syntax of package regexp) at the first call of its function, and the same
// at each other. It panics there if expr is not one.
func Lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
