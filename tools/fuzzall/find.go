package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// target is one fuzz test.
type target struct {
	module string // folder of its module
	pkg    string // import path
	name   string
}

func (t target) String() string { return t.pkg + " " + t.name }

// goCommand runs the go command in a folder. When the context ends it is
// interrupted, with everything it started, and given a moment.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns what a go command prints, with its complaint in the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w\n%s%s", strings.Join(cmd.Args, " "), cmd.Dir, err, complaint.Bytes(), out)
	}
	return out, nil
}

// listed is what we read of a package that go list prints.
type listed struct {
	Dir          string
	ImportPath   string
	TestGoFiles  []string
	XTestGoFiles []string
}

// fuzzFunc is how gofmt leaves the head of a fuzz test. Reading the files
// spares building every test program only to ask it; a name read wrongly shows
// as a fuzz test that ends without a run.
var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz[\pL\pN_]*)\(\w+ \*testing\.F\)`)

// fuzzTests returns the names of the package's fuzz tests.
func (p listed) fuzzTests() ([]string, error) {
	var names []string
	for _, file := range append(p.TestGoFiles, p.XTestGoFiles...) {
		raw, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			return nil, err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(raw, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names, nil
}

// findTargets returns the fuzz tests of a module, in the order of go list.
func findTargets(ctx context.Context, module string) ([]target, error) {
	out, err := output(goCommand(ctx, module, "list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./..."))
	if err != nil {
		return nil, err
	}
	var all []target
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		names, err := p.fuzzTests()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			all = append(all, target{module: module, pkg: p.ImportPath, name: name})
		}
	}
}
