package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pure are the deciders: functions of state, event and time.
var pure = []string{"internal/sandbox/batch", "internal/sandbox/lease", "internal/sandbox/roster", "internal/run/dispatch"}

// impure are packages that a decider cannot use, with the reason.
var impure = map[string]string{
	"os": "I/O", "net": "I/O", "net/http": "I/O", "io/ioutil": "I/O", "os/exec": "I/O", "syscall": "I/O",
	"math/rand": "randomness is an argument", "math/rand/v2": "randomness is an argument", "crypto/rand": "randomness is an argument",
	"sync": "a decider has one owner", "context": "a decider does not wait", "log/slog": "effects are returned values",
}

// clocks are the functions of package time that read or wait for the clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

func TestDecidersArePure(t *testing.T) {
	for _, s := range tree(t) {
		if s.test || !slices.Contains(pure, s.pkg) {
			continue
		}
		for _, imp := range s.imports() {
			if why, bad := impure[imp]; bad {
				t.Errorf("%s imports %s: %s", s.path, imp, why)
			}
			if imp == module+"/internal/base/life" {
				t.Errorf("%s imports %s: a decider starts no goroutine", s.path, imp)
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, sel.Sel.Name) {
					t.Errorf("%s: time.%s in a decider: time is an argument", s.at(n.Pos()), sel.Sel.Name)
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "id" && (strings.HasPrefix(sel.Sel.Name, "New") || sel.Sel.Name == "Random") {
					t.Errorf("%s: id.%s in a decider: randomness is an argument", s.at(n.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestGoroutinesAreOwned(t *testing.T) {
	for _, s := range tree(t) {
		if s.generated || s.pkg == "internal/base/life" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s: bare go statement: start it with a life.Group, which waits for it", s.at(g.Pos()))
			}
			return true
		})
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range tree(t) {
		if !s.test {
			continue
		}
		bubbles := slices.Contains(s.imports(), "testing/synctest")
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && !bubbles {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && sel.Sel.Name == "Sleep" {
					t.Errorf("%s: time.Sleep in a test: wait for what you wait for", s.at(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	docs := map[string]string{}
	where := map[string]string{}
	for _, s := range tree(t) {
		if s.test || s.generated {
			continue
		}
		where[s.pkg] = s.path
		if s.ast.Doc != nil {
			docs[s.pkg] += s.ast.Doc.Text()
		}
	}
	for pkg, file := range where {
		doc := docs[pkg]
		if lines := strings.Count(strings.TrimSpace(doc), "\n") + 1; doc == "" || lines < 2 || lines > 24 {
			t.Errorf("%s (%s): the package doc has %d lines: say in 3 to 20 what it owns, what it must not do, how it is used concurrently", pkg, file, lines)
		}
	}
}
