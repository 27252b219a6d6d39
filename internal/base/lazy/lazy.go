// Package lazy holds values that are made when they are first used, so that a
// program that does not use them starts without them. Safe for concurrent use.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles expr when it is first called. An
// expression that does not compile panics then: it is for constants, which
// tests use.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
